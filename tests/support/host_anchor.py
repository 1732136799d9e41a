"""Keeps a network namespace alive, run as a script by `hosts.py`: whatever happens to the test, nothing is left.

Says `ready`, waits for the end of its input, then ends every process of its namespace and itself. The
input ends also when the test is killed, and the namespace, its links and addresses go with their last
process; so nothing has a name that somebody would have to clean up.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def end_all() -> None:
    """Kill what runs in this namespace, until nothing does."""
    while others := list(find_others()):
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def find_others() -> Iterator[int]:
    """Give the living processes of this namespace but this one."""
    namespace = Path("/proc/self/ns/net").readlink()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(process.name) != os.getpid() and (process / "ns/net").readlink() == namespace and lives(process):
                yield int(process.name)


def lives(process: Path) -> bool:
    """Tell a process from one that is dead and only not waited for yet."""
    return (process / "stat").read_bytes().rpartition(b")")[2].split()[0] not in {b"Z", b"X"}


if __name__ == "__main__":
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    end_all()
