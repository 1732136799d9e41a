"""Reading what nats-server sends: subjects, headers, reply subjects, refusals."""

import pytest
from nats import errors as nats_errors

from exo.broker.errors import BusUnavailableError, PayloadTooLargeError, PermissionDeniedError
from exo.broker.frames import Frame, read_headers
from exo.broker.policy import Denial, read_denial, translate
from exo.broker.replies import Place, read_direct, read_place
from exo.broker.wildcards import check_key, matches


@pytest.mark.parametrize(
    ("pattern", "subject", "covered"),
    [
        ("exo.tokens.>", "exo.tokens.n1.t1", True),
        ("exo.tokens.>", "exo.tokens", False),
        ("exo.tokens.*.t1", "exo.tokens.n1.t1", True),
        ("exo.tokens.*.t1", "exo.tokens.n1.t2", False),
        ("exo.tokens.*", "exo.tokens.n1.t1", False),
        (">", "a.b", True),
        ("a.b", "axb", False),
    ],
)
def test_patterns_match_as_in_nats(pattern: str, subject: str, *, covered: bool) -> None:
    assert matches(pattern, subject) is covered


def test_keys_are_checked() -> None:
    assert check_key("a/b_c=d.e-1") == "a/b_c=d.e-1"
    with pytest.raises(ValueError, match="not a key"):
        check_key("a>")


def test_a_status_line_is_read() -> None:
    frame = Frame("inbox", "", b"", b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\n\r\n")
    assert (frame.status, frame.description) == ("100", "Idle Heartbeat")
    assert frame.read_headers() == {"Nats-Last-Consumer": "7"}
    assert Frame("inbox", "", b"", b"NATS/1.0 503\r\n\r\n").status == "503"


def test_data_has_no_status() -> None:
    assert Frame("a", "", b"x").status == ""
    assert Frame("a", "", b"x", b"NATS/1.0\r\nA: 404\r\n\r\n").status == ""


def test_headers_of_any_shape_are_read() -> None:
    block = "NATS/1.0\r\nA:1\r\nB:  zwei ü \r\nnonsense\r\nC: a:b\r\n\r\n".encode()
    assert read_headers(block) == {"A": "1", "B": "zwei ü", "C": "a:b"}


def test_reply_subjects_are_read_with_and_without_a_domain() -> None:
    expected = Place(deliveries=2, sequence=30, consumer_sequence=4, time=1_700_000_000_000)
    assert read_place("$JS.ACK.EXO_EVENTS.me.2.30.4.1700000000000999999.5") == expected
    assert read_place("$JS.ACK.hub.acc.EXO_EVENTS.me.2.30.4.1700000000000000000.5.rnd") == expected


def test_direct_gets_are_read() -> None:
    headers = (
        b"NATS/1.0\r\nNats-Subject: a.b\r\nNats-Sequence: 3\r\nNats-Time-Stamp: 2026-12-01T00:00:00.123456789Z\r\n\r\n"
    )
    message = read_direct(Frame("inbox", "", b"x", headers))
    assert (message.subject, message.sequence, message.payload, message.time) == ("a.b", 3, b"x", 1796083200123)


def test_refusals_are_recognised() -> None:
    told = nats_errors.Error('nats: permissions violation for publish to "exo.events.epoch"')
    assert read_denial(told) == Denial("publish", "exo.events.epoch")
    assert read_denial(nats_errors.Error("nats: something else")) is None


def test_errors_of_the_library_become_ours() -> None:
    assert isinstance(translate(nats_errors.MaxPayloadError(), subject="a", size=9, limit=8), PayloadTooLargeError)
    assert isinstance(translate(nats_errors.AuthorizationError(), subject="a"), PermissionDeniedError)
    for error in (nats_errors.OutboundBufferLimitError(), nats_errors.ConnectionClosedError()):
        assert isinstance(translate(error, subject="a"), BusUnavailableError)
