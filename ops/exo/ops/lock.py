"""The lock on a data directory: one node at a time.

Held by `exo up` for its whole life; the operating system drops it even after `kill -9`. The file
says who holds it and since when, which the second `exo up` tells its user.
"""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from exo.ops.errors import CommandError

_PATIENCE = 0.2
"""Seconds; `is_held` takes the lock for a moment to learn whether it can."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the lock; `since` is Unix time in seconds."""

    pid: int
    since: float


class DirectoryInUseError(CommandError):
    """Raised when another process holds the lock. `holder` is None when the file does not say who."""

    def __init__(self, directory: Path, *, holder: Holder | None) -> None:
        who = f"process {holder.pid} since {_show_time(holder.since)}" if holder else "another process"
        super().__init__(
            f"{directory} is in use by {who}",
            remedy="stop that one with `exo down`, or start this one with another --data-dir and --port",
        )
        self.directory = directory
        self.holder = holder


class DirectoryLock:
    """A context manager that holds the lock, or raises `DirectoryInUseError` on entry."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor = -1

    def __enter__(self) -> Self:
        # Never unlinked: a process that waits on the old file and one that made a new one would both hold "the" lock.
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not self._try_for(_PATIENCE):
            os.close(self._descriptor)
            raise DirectoryInUseError(self._file.parent, holder=read_holder(self._file))
        self._sign()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def _try_for(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.02)
            else:
                return True

    def _sign(self) -> None:
        content = msgspec.json.encode(Holder(pid=os.getpid(), since=time.time()))
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, content, 0)


def read_holder(file: Path) -> Holder | None:
    """Give what the file says; it may be older than the lock, so only a held lock makes it true."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def is_held(file: Path) -> bool:
    """Whether some process holds the lock now."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _show_time(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
