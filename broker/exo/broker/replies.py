"""Reading JetStream's reply subjects and headers by hand: `msg.metadata` of nats-py costs as much as the rest.

Pure. `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`, or the
same with `<domain>.<account>` before and a random token behind.
"""

from datetime import datetime
from typing import NamedTuple

from exo.broker.bus import StoredMessage
from exo.broker.frames import Frame

_PLAIN_TOKENS = 9


class Place(NamedTuple):
    """Where a delivered message stands. `time` is Unix ms."""

    deliveries: int
    sequence: int
    consumer_sequence: int
    time: int


def read_place(reply: str) -> Place:
    """Read the reply subject of a message that a consumer delivered."""
    tokens = reply.split(".")
    first = 4 if len(tokens) == _PLAIN_TOKENS else 6
    return Place(
        int(tokens[first]), int(tokens[first + 1]), int(tokens[first + 2]), int(tokens[first + 3]) // 1_000_000
    )


def read_direct(frame: Frame) -> StoredMessage:
    """Read one message as direct get gives it."""
    headers = frame.read_headers()
    return StoredMessage(
        headers["Nats-Subject"],
        int(headers["Nats-Sequence"]),
        frame.payload,
        int(datetime.fromisoformat(headers["Nats-Time-Stamp"]).timestamp() * 1000),
    )
