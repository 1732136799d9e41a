"""However the byte stream is cut into pieces, the same messages come out of it."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.errors import ProtocolError

from exo.broker.frames import Frame, FrameParser

HEADERS = b"NATS/1.0\r\nNats-Sequence: 7\r\n\r\n"
SENT = st.tuples(
    st.sampled_from(["exo.tokens.n1.t1", "a"]),
    st.integers(1, 999),
    st.sampled_from(["", "_INBOX.x.1"]),
    st.one_of(st.binary(max_size=60), st.sampled_from([b"", b"\r\n", b"MSG a 1 3\r\nabc\r\n", bytes(100_000)])),
    st.sampled_from([b"", HEADERS]),
)


class Listener(Client):
    """Counts the lines that are left to the library."""

    pings = 0

    async def _process_ping(self) -> None:
        self.pings += 1


def spell(subject: str, sid: int, reply: str, payload: bytes, headers: bytes) -> bytes:
    parts = ["HMSG" if headers else "MSG", subject, str(sid), *([reply] if reply else [])]
    parts += [str(len(headers))] if headers else []
    return " ".join([*parts, str(len(headers) + len(payload))]).encode() + b"\r\n" + headers + payload + b"\r\n"


def parse(pieces: list[bytes]) -> tuple[list[tuple[int, Frame]], int]:
    found: list[tuple[int, Frame]] = []
    client = Listener()
    parser = FrameParser(client, lambda sid, frame: found.append((sid, frame)))

    async def feed() -> None:
        for piece in pieces:
            await parser.parse(piece)

    asyncio.run(feed())
    return found, client.pings


@given(st.lists(SENT, max_size=6), st.lists(st.integers(0, 1_000_000), max_size=8))
def test_cuts_do_not_matter(sent: list[tuple[str, int, str, bytes, bytes]], cuts: list[int]) -> None:
    stream = b"".join(spell(*message) + b"PING\r\n" for message in sent)
    borders = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    found, pings = parse([stream[a:b] for a, b in pairwise(borders)])
    assert found == [(sid, Frame(subject, reply, payload, headers)) for subject, sid, reply, payload, headers in sent]
    assert pings == len(sent)


@pytest.mark.parametrize("line", [b"MSG a x 3\r\nabc\r\n", b"HMSG a 3\r\nabc\r\n", b"NONSENSE\r\n", bytes(70_000)])
def test_what_is_no_protocol_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse([line])
