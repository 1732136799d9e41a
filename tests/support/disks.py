"""A small disk of its own under one directory of a node, to be filled and emptied from outside.

A tmpfs in a mount namespace: only the node and its children see it. Needs what `hosts.py` needs.
"""

import os
import subprocess
from pathlib import Path

from support.node import NodeProcess


def small_disk(directory: Path, *, megabytes: int) -> tuple[str, ...]:
    """Give a prefix for a node's command: what it writes below `directory` goes to a disk of this size."""
    directory.mkdir(parents=True, exist_ok=True)
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    mount = f'mount -t tmpfs -o size={megabytes}m tmpfs "$0" && exec "$@"'
    return (*unshare, "sh", "-c", mount, str(directory))


def fill(node: NodeProcess, directory: Path) -> Path:
    """Fill the disk to the last byte, give the file that does it."""
    hog = Path(f"/proc/{node.pid}/root{directory}/hog")
    done = subprocess.run(["dd", "if=/dev/zero", f"of={hog}", "bs=64k"], capture_output=True, check=False, text=True)
    assert "No space left" in done.stderr
    return hog
