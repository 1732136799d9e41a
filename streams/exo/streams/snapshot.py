"""State at one sequence of the log, so that a projection need not replay from the beginning."""

import hashlib

import msgspec

from exo.streams.codec import CodecError, decode_state, encode
from exo.streams.state import State

SCHEMA = 2
"""Raised whenever an old State cannot be read as a new one; old snapshots are then not loaded."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A State with its checksum. `state.applied` is the sequence it stands at.

    `hash` is the SHA-256 of the State's bytes as they are stored, so that a version whose State has more
    fields can still tell that they are whole.
    """

    schema: int
    hash: str
    state: State


class _Sealed(msgspec.Struct, frozen=True, kw_only=True):
    schema: int
    hash: str
    state: msgspec.Raw


_decoder = msgspec.json.Decoder(_Sealed)


def take_snapshot(state: State) -> Snapshot:
    """Freeze a State for storing."""
    return Snapshot(schema=SCHEMA, hash=_hash(encode(state)), state=state)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Give the bytes to store."""
    return encode(snapshot)


def decode_snapshot(data: bytes) -> Snapshot | None:
    """Read a stored snapshot; None when it is of another schema, damaged or does not match its hash."""
    try:
        sealed = _decoder.decode(data)
        if sealed.schema != SCHEMA:
            return None
        stored = bytes(sealed.state)
        if _hash(stored) != sealed.hash:
            return None
        return Snapshot(schema=SCHEMA, hash=sealed.hash, state=decode_state(stored))
    except (msgspec.DecodeError, UnicodeDecodeError, CodecError):
        return None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
