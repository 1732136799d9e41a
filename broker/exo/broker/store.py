"""One process per store: a file lock that names its holder, and the clean-up of a leftover server.

Two nats-servers on one store both acknowledge and silently diverge (measured with 2.15), so the hub
holds this lock before it starts one.
"""

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog

from exo.broker.errors import StoreLockedError

log = structlog.get_logger(__name__)

LEFTOVER_WAIT: Final = 5.0
_POLL: Final = 0.05


class StoreLock:
    """A lock on a directory, held until `release` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "lock"
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock or raise `StoreLockedError` with the holder."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(file, 32).decode(errors="replace").strip()
            os.close(file)
            named = f"process {holder}" if holder else "another process"
            raise StoreLockedError(self.path.parent, holder=named) from error
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        self._file = file

    def release(self) -> None:
        """Give the lock back; safe to call twice. The file stays: removing it would let two processes in."""
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


async def stop_leftovers(ports_directory: Path, *, config_file: Path) -> list[int]:
    """Stop servers that an earlier process left on our store; gives their pids.

    Called with the lock held. A ports file names a pid, which may belong to something else by now:
    only a process whose command line holds our configuration file is touched.
    """
    stopped: list[int] = []
    for file in sorted(ports_directory.glob("nats-server_*.ports")):
        pid = int(file.stem.partition("_")[2])
        if str(config_file) in read_command_line(pid):
            log.warning("stopping a leftover nats-server", pid=pid)
            await _stop_process(pid, config_file=config_file)
            stopped.append(pid)
        file.unlink(missing_ok=True)
    return stopped


def read_command_line(pid: int) -> str:
    """Give the command line of a process; empty when there is none or it only waits to be reaped."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            return ""
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


async def _stop_process(pid: int, *, config_file: Path) -> None:
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, kind)
            async with asyncio.timeout(LEFTOVER_WAIT):
                while str(config_file) in read_command_line(pid):  # noqa: ASYNC110 - not our child: no event tells
                    await asyncio.sleep(_POLL)
        except ProcessLookupError:
            return
        except TimeoutError:
            log.warning("a leftover nats-server does not stop", pid=pid, signal=kind.name)
        else:
            return


def measure_room(directory: Path) -> int:
    """Give the bytes that the store may take: what is free on its disk plus what it holds already."""
    directory.mkdir(parents=True, exist_ok=True)
    held = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            # The server removes files while we look.
            with suppress(FileNotFoundError):
                held += Path(folder, name).stat().st_size
    return shutil.disk_usage(directory).free + held
