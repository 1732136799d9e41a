"""Bytes <-> messages, one encoder for all planes and one decoder built once for each.

JSON everywhere, so that the bus stays readable with any tool (ADR 0006).
"""

import hashlib
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from exo.streams import pipe
from exo.streams.chunks import Chunk
from exo.streams.commands import Command
from exo.streams.events import Envelope, Recorded, UnknownEvent
from exo.streams.requests import StoredRequest
from exo.streams.state import State
from exo.streams.telemetry import Sample

T = TypeVar("T")


class CodecError(ValueError):
    """Raised when bytes are not a message of the expected kind; goes to the poison stream."""


_encoder: Final = msgspec.json.Encoder()
_canonical: Final = msgspec.json.Encoder(order="deterministic")
_command: Final = msgspec.json.Decoder(Command)
_envelope: Final = msgspec.json.Decoder(Envelope)
_chunk: Final = msgspec.json.Decoder(Chunk)
_stored: Final = msgspec.json.Decoder(StoredRequest)
_sample: Final = msgspec.json.Decoder(Sample)
_state: Final = msgspec.json.Decoder(State)
_to_runner: Final = msgspec.json.Decoder(pipe.ToRunner)
_from_runner: Final = msgspec.json.Decoder(pipe.FromRunner)


class _Tag(msgspec.Struct, frozen=True):
    type: str = ""


class _TaggedEnvelope(msgspec.Struct, frozen=True):
    event: _Tag = _Tag()


_tagged_envelope: Final = msgspec.json.Decoder(_TaggedEnvelope)


def encode(message: Any) -> bytes:
    """Encode any message of this package."""
    return _encoder.encode(message)


def _decode(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CodecError(str(error)) from error


def decode_command(data: bytes) -> Command:
    """Decode a command; `CodecError` when it is of an unknown type or malformed."""
    return _decode(_command, data)


def decode_event(data: bytes, *, sequence: int) -> Recorded:
    """Decode an event; never raises: what cannot be read becomes an `UnknownEvent`."""
    try:
        return Recorded(sequence, _envelope.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Recorded(sequence, None, UnknownEvent(type=_event_type(data)))


def _event_type(data: bytes) -> str:
    try:
        return _tagged_envelope.decode(data).event.type
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def decode_chunk(data: bytes) -> Chunk:
    """Decode one chunk of an answer."""
    return _decode(_chunk, data)


def decode_stored_request(data: bytes) -> StoredRequest:
    """Decode the body of a request."""
    return _decode(_stored, data)


def decode_sample(data: bytes) -> Sample:
    """Decode one sample of a gauge."""
    return _decode(_sample, data)


def decode_to_runner(data: bytes) -> pipe.ToRunner:
    """Decode a frame that a runner reads."""
    return _decode(_to_runner, data)


def decode_from_runner(data: bytes) -> pipe.FromRunner:
    """Decode a frame that a node reads."""
    return _decode(_from_runner, data)


def decode_as(kind: type[T], data: bytes) -> T:
    """Decode a control message or reply of a given type."""
    return _decode(_decoder_of(kind), data)


@cache
def _decoder_of(kind: type[T]) -> "msgspec.json.Decoder[T]":
    return msgspec.json.Decoder(kind)


def decode_state(data: bytes) -> State:
    """Decode State as a snapshot holds it."""
    return _decode(_state, data)


def hash_state(state: State) -> str:
    """Give the SHA-256 of State in canonical form, as hex."""
    return hashlib.sha256(_canonical.encode(state)).hexdigest()
