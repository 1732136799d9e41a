"""Files that only this user may read, written whole or not at all.

Used for keys, certificates and the addresses of earlier peers.
"""

import os
from pathlib import Path


def write_private(file: Path, content: bytes) -> None:
    """Replace a file by one with mode 0600; a crash leaves the old one or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = file.with_name(f".{file.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    draft.replace(file)
