"""The nkey with which this node's processes prove themselves to its nats-server.

Loopback keeps other machines out, not other users of this one: without a key any local account
could read prompts and place models. The seed lies in a file only this user can read; the server's
configuration holds the public half, and the seed never crosses the wire.
"""

import os
from pathlib import Path
from typing import Any, cast

import msgspec
import nkeys

_nkeys = cast("Any", nkeys)  # it carries no types


class Identity(msgspec.Struct, frozen=True):
    """A user of the server. `seed_file` is what the stock `nats` CLI takes as `--nkey`."""

    public_key: str
    seed_file: Path

    def read_seed(self) -> str:
        """Give the secret half."""
        return self.seed_file.read_text().strip()


def load_identity(directory: Path) -> Identity:
    """Read the key of this directory, made at its first use."""
    file = directory / "user.nk"
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_secret(file, _nkeys.encode_seed(os.urandom(32), prefix=_nkeys.PREFIX_BYTE_USER))
    key = _nkeys.from_seed(bytearray(file.read_bytes().strip()))
    public: bytes = key.public_key
    return Identity(public.decode(), file)


def _write_secret(file: Path, secret: bytes) -> None:
    # Complete or absent: a crash must not leave half a key behind.
    draft = file.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(secret + b"\n")
    draft.rename(file)
