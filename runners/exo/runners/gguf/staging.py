"""A folder that appears whole or not at all.

It is filled under a hidden name beside its destination and renamed once everything is durable. A
staging folder is locked while its process lives, so one that a killed import left behind is told
from one at work, and removed by the next import.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from exo.runners.gguf.errors import DestinationTaken, DiskFull

_MARK = ".importing-"
_SPARE_BYTES = 64 << 20
"""Left free on the disk beside the model."""


@contextmanager
def stage_folder(destination: Path, needed_bytes: int) -> Generator[Path]:
    """Give an empty folder; on leaving without an error it becomes `destination`.

    Raises `DestinationTaken` and `DiskFull` before anything is written.
    """
    _refuse_taken(destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    sweep_leftovers(destination.parent)
    free = shutil.disk_usage(destination.parent).free
    if free < needed_bytes + _SPARE_BYTES:
        message = f"the model needs {needed_bytes >> 20} MiB, {free >> 20} MiB are free"
        raise DiskFull(message, f"free space under {destination.parent}")
    staging, lock = _make_staging(destination)
    try:
        yield staging
        _make_durable(staging)
        staging.chmod(0o755)
        _publish(staging, destination)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def sweep_leftovers(parent: Path) -> list[Path]:
    """Remove staging folders whose process is gone; give their paths."""
    removed: list[Path] = []
    for leftover in parent.glob(f".*{_MARK}*"):
        lock = _lock(leftover)
        if lock is None:
            continue
        shutil.rmtree(leftover)
        os.close(lock)
        removed.append(leftover)
    return removed


def _make_staging(destination: Path) -> tuple[Path, int]:
    prefix = f".{destination.name}{_MARK}"
    while True:
        staging = Path(tempfile.mkdtemp(prefix=prefix, dir=destination.parent))
        lock = _lock(staging)
        # A sweep of another import may see the new folder before its lock; then make another.
        if lock is not None and staging.exists():
            return staging, lock
        if lock is not None:
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """Give a descriptor that holds the folder's lock until closed, None when another process does."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _publish(staging: Path, destination: Path) -> None:
    try:
        staging.rename(destination)
    except OSError:
        # Another import finished first: renaming onto a folder that is not empty fails.
        if destination.exists():
            _refuse_taken(destination)
        raise
    _sync(destination.parent)


def _refuse_taken(destination: Path) -> None:
    if destination.exists():
        message = f"{destination} exists already"
        raise DestinationTaken(message, "remove that model first, or import under another name")


def _make_durable(folder: Path) -> None:
    for path in folder.iterdir():
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
