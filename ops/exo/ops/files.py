"""Writes small files that are read by others or hold a secret: whole or not at all, for their owner only.

Used for the node's address, its id, the cluster's secret and what the service manager reads.
"""

import os
from pathlib import Path


def write_private(file: Path, content: bytes) -> None:
    """Replace a file at once, so that no reader ever sees half of it; 0600, its directory 0700 if it is new."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(file)


def is_private(file: Path) -> bool:
    """Whether nobody but its owner (and root) can read a file; one that is not there is."""
    try:
        return file.stat().st_mode & 0o077 == 0
    except OSError:
        return True
