"""What holds for every message and every garbage."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exo.streams import codec
from exo.streams.events import Envelope
from support.messages import UNIONS, strategy

DECODERS = {
    "command": codec.decode_command,
    "chunk": codec.decode_chunk,
    "to_runner": codec.decode_to_runner,
    "from_runner": codec.decode_from_runner,
}


@pytest.mark.parametrize("union", sorted(DECODERS))
@given(data=st.data())
def test_decode_undoes_encode(union: str, data: st.DataObject) -> None:
    message: Any = data.draw(strategy(UNIONS[union]))
    assert DECODERS[union](codec.encode(message)) == message


@given(envelope=strategy(Envelope), sequence=st.integers(1, 2**40))
def test_event_keeps_its_envelope(envelope: Envelope, sequence: int) -> None:
    recorded = codec.decode_event(codec.encode(envelope), sequence=sequence)
    assert recorded.envelope == envelope
    assert recorded.sequence == sequence


@given(garbage=st.binary(max_size=80))
def test_garbage_event_is_unknown_and_never_raises(garbage: bytes) -> None:
    recorded = codec.decode_event(garbage, sequence=1)
    assert (recorded.envelope is None) == (recorded.unknown is not None)


@pytest.mark.parametrize("union", sorted(DECODERS))
@given(garbage=st.binary(max_size=80))
def test_garbage_raises_codec_error_only(union: str, garbage: bytes) -> None:
    with pytest.raises(codec.CodecError):
        DECODERS[union](b"\xff" + garbage)


def test_event_of_a_newer_version_names_its_type() -> None:
    recorded = codec.decode_event(b'{"id":"x","at":1,"event":{"type":"moon_landed","crew":3}}', sequence=9)
    assert recorded.unknown is not None
    assert recorded.unknown.type == "moon_landed"


def test_command_of_a_newer_version_is_refused() -> None:
    payload = b'{"type":"fly","command_id":"c","issued_at":1}'
    with pytest.raises(codec.CodecError):
        codec.decode_command(payload)
