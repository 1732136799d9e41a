import pytest

from exo.broker.cluster_frames import (
    KNOWN_TYPES,
    MAX_FRAME,
    Burst,
    FrameError,
    KnownFrame,
    Ping,
    Refused,
    Saying,
    Unknown,
    decode_frame,
    encode_frame,
)
from support.peers import make_hello, make_settings


@pytest.mark.parametrize(
    "frame", [Ping(1), Refused("other_cluster", "why"), Saying(make_hello(make_settings("a"))), Burst("x", last=True)]
)
def test_frames_come_back_as_they_went(frame: KnownFrame) -> None:
    encoded = encode_frame(frame)
    assert int.from_bytes(encoded[:4], "big") == len(encoded) - 4
    assert decode_frame(encoded[4:]) == frame


def test_every_known_type_has_a_struct() -> None:
    tags = {str(kind.__struct_config__.tag) for kind in KnownFrame.__args__}
    assert tags == KNOWN_TYPES


def test_a_newer_type_is_unknown_and_newer_fields_do_not_matter() -> None:
    assert decode_frame(b'{"type":"later","with":[1]}') == Unknown("later")
    assert decode_frame(b'{"type":"ping","number":1,"more":2}') == Ping(1)


@pytest.mark.parametrize(
    "body", [b"", b"hello", b"[]", b"{}", b'{"type":1}', b'{"type":"ping"}', b"\xff\xfe", b"{" * 99]
)
def test_anything_else_is_an_error(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode_frame(body)


def test_a_frame_over_the_limit_is_not_sent() -> None:
    with pytest.raises(FrameError, match="over the limit"):
        encode_frame(Burst("x" * MAX_FRAME))
