"""Names the process that listens on a TCP port: for `exo doctor` and `exo up`, which tell their user what to stop.

Reads `/proc` on Linux and asks `lsof` elsewhere. Processes of other users can often not be seen.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_PATIENCE = 5.0


def find_port_holder(port: int, *, proc: Path = Path("/proc")) -> str:
    """Give `name (process N)`, empty when it cannot be told."""
    if not (proc / "net" / "tcp").exists():
        return _ask_lsof(port)
    inodes = set(_find_inodes(port, proc))
    return next((_name_process(process) for process in _list_processes(proc) if inodes & _list_sockets(process)), "")


def _find_inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            rows = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            words = row.split()
            if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                yield words[9]


def _list_processes(proc: Path) -> Iterator[Path]:
    return (folder for folder in proc.iterdir() if folder.name.isdigit())


def _list_sockets(process: Path) -> set[str]:
    found: set[str] = set()
    try:
        for descriptor in (process / "fd").iterdir():
            match = _SOCKET.fullmatch(str(descriptor.readlink()))
            if match:
                found.add(match[1])
    except OSError:
        # It is another user's, or it has just ended.
        return found
    return found


def _name_process(process: Path) -> str:
    try:
        return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    except OSError:
        return f"process {process.name}"


def parse_lsof(text: str) -> str:
    """Read what `lsof -Fpc` prints: a line `p<pid>`, then `c<command>`."""
    fields = {line[:1]: line[1:] for line in reversed(text.splitlines())}
    return f"{fields['c']} (process {fields['p']})" if {"p", "c"} <= fields.keys() else ""


def _ask_lsof(port: int) -> str:
    command = ["lsof", "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-Fpc"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return parse_lsof(done.stdout)
