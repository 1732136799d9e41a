"""Stamp files: the memory that makes a second `make up` start in seconds.

A stamp holds the hash of everything a step was made from; the step is current while that hash is the same.
Stamps lie inside what they speak for (`.venv`, `.build/node`), so deleting the thing deletes the claim.
"""

import hashlib
import platform
import sys
from collections.abc import Iterable
from pathlib import Path


def hash_inputs(files: Iterable[Path]) -> str:
    """Hash the given files' content together with this interpreter and machine."""
    digest = hashlib.sha256(f"{sys.version} {sys.executable} {platform.platform()}".encode())
    for file in files:
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def is_current(stamp: Path, inputs: str) -> bool:
    """Whether the stamp was written for exactly these inputs."""
    return stamp.is_file() and stamp.read_text() == inputs


def write(stamp: Path, inputs: str) -> None:
    """Record that the step was done for these inputs."""
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(inputs)
