"""The frames of the cluster port: four bytes of length, then JSON of one tagged struct.

Pure. Used by `cluster_stream.py`. A type that this version does not know is data of a newer node, to
be skipped; a type it knows with the wrong fields is an error.
"""

from typing import Final

import msgspec

from exo.broker.hello import Hello
from exo.broker.peering import RefusalCode
from exo.streams.ids import BootId, NodeId

PROTOCOL: Final = 1
"""Raised when an older node could not understand a newer one; more types and fields need no new number."""

MAX_FRAME: Final = 64 * 1024
PREFIX: Final = 4


class FrameError(ValueError):
    """Raised for bytes that are no frame."""


class Greeting(msgspec.Struct, frozen=True, kw_only=True, tag="greeting", tag_field="type"):
    """Who speaks; the first frame of both. `port` is the speaker's cluster port, `purpose` what a dialler wants."""

    protocol: int
    cluster: str
    node: NodeId
    boot: BootId
    name: str
    version: str
    nonce: str
    port: int = 0
    purpose: str = "peer"


class Proof(msgspec.Struct, frozen=True, tag="proof", tag_field="type"):
    """That the speaker has the cluster key (hexadecimal)."""

    value: str


class Refused(msgspec.Struct, frozen=True, tag="refusal", tag_field="type"):
    """Why the speaker closes; its last frame."""

    code: RefusalCode
    reason: str


class Introduction(msgspec.Struct, frozen=True, tag="introduction", tag_field="type"):
    """The speaker's Hello before it was admitted: so that the listener can prepare for it."""

    hello: Hello


class Saying(msgspec.Struct, frozen=True, tag="hello", tag_field="type"):
    """The speaker's Hello."""

    hello: Hello


class Ping(msgspec.Struct, frozen=True, tag="ping", tag_field="type"):
    """Asks for a Pong with the same number."""

    number: int


class Pong(msgspec.Struct, frozen=True, tag="pong", tag_field="type"):
    """Answers a Ping."""

    number: int


class Burst(msgspec.Struct, frozen=True, tag="burst", tag_field="type"):
    """A slice of a bandwidth probe; the last one asks for a BurstDone."""

    padding: str
    last: bool = False


class BurstDone(msgspec.Struct, frozen=True, tag="burst_done", tag_field="type"):
    """How many bytes of padding arrived."""

    received: int


class Unknown(msgspec.Struct, frozen=True):
    """A frame of a type that this version does not know."""

    type: str


KnownFrame = Greeting | Proof | Refused | Introduction | Saying | Ping | Pong | Burst | BurstDone
Frame = KnownFrame | Unknown

KNOWN_TYPES: Final = frozenset(
    {"greeting", "proof", "refusal", "introduction", "hello", "ping", "pong", "burst", "burst_done"}
)

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(KnownFrame)
_type_decoder: Final = msgspec.json.Decoder(Unknown)


def encode_frame(frame: KnownFrame) -> bytes:
    """Give the bytes of a frame, its length in front."""
    body = _encoder.encode(frame)
    if len(body) > MAX_FRAME:
        raise FrameError(f"a frame of {len(body)} bytes is over the limit of {MAX_FRAME}")
    return len(body).to_bytes(PREFIX, "big") + body


def decode_frame(body: bytes) -> Frame:
    """Read a frame without its length, or raise `FrameError`."""
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        try:
            unknown = _type_decoder.decode(body)
        except msgspec.MsgspecError:
            raise FrameError(f"not a frame: {error}") from error
        if unknown.type in KNOWN_TYPES:
            raise FrameError(f"a broken frame of type {unknown.type}: {error}") from error
        return unknown
