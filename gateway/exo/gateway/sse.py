"""Server-sent events: how frames look on the wire, and the response that writes them.

`id:` of a frame is `<chunk>.<frame>`: the index of the chunk it came from and its number among the
frames of that chunk, so that a stream can be continued behind any frame. Comments carry no id and no
blank line behind them: OpenAI's Python SDK takes a blank line after any `id:` for an event and fails
on its empty data.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from exo.gateway.bodies import invalid

HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE: Final = b": keep-alive\n"
DONE: Final = b"[DONE]"


class Frame(NamedTuple):
    """One frame: JSON (or `[DONE]`) of one line, with an event name where the dialect wants one."""

    data: bytes
    event: bytes = b""
    comment: bool = False


class Position(NamedTuple):
    """Where a frame stands in its stream."""

    chunk: int
    frame: int


BEGINNING: Final = Position(-1, 0)


def parse_position(text: str) -> Position:
    """Read a `Last-Event-ID`; empty means the beginning. Raises `invalid_request` on anything odd."""
    if not text:
        return BEGINNING
    chunk, dot, frame = text.partition(".")
    if not (dot and chunk.isascii() and chunk.isdigit() and frame.isascii() and frame.isdigit()):
        raise invalid(f"Last-Event-ID must look like `<chunk>.<frame>`, not {text!r}.", "Last-Event-ID")
    return Position(int(chunk), int(frame))


def encode_frames(index: int, frames: Iterable[Frame], *, after: Position = BEGINNING) -> bytes:
    """Encode the frames of the chunk `index`, without those that stand at or before `after`."""
    parts: list[bytes] = []
    number = 0
    for data, event, comment in frames:
        if comment:
            if index > after.chunk:
                parts.append(b": %b\n" % data)
            continue
        if index > after.chunk or (index == after.chunk and number > after.frame):
            name = b"event: %b\n" % event if event else b""
            parts.append(b"id: %d.%d\n%bdata: %b\n\n" % (index, number, name, data))
        number += 1
    return b"".join(parts)


def encode_event(data: bytes, *, event_id: str = "", event: str = "") -> bytes:
    """Encode one frame of a stream that is no answer, such as the event log."""
    head = (f"id: {event_id}\n" if event_id else "") + (f"event: {event}\n" if event else "")
    return b"%bdata: %b\n\n" % (head.encode(), data)
