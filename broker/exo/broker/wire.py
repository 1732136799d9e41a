"""nats-py's client with a short cut: messages go straight from its parser to our handlers.

Its own way makes a header dictionary, a `Msg`, a bounded queue and a task of each subscription: five
times the cost, and what does not fit the queue is dropped. Used by `connect.py` only.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.subscription import Subscription

log = structlog.get_logger(__name__)

_VERSION: Final = b"NATS/1.0"


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One message as it came; `headers` is the raw block, empty when there are none."""

    subject: str
    reply: str
    payload: bytes
    headers: bytes = b""

    @property
    def status(self) -> str:
        """The three digits of a control message or of the end of a batch; empty for data."""
        return self.headers[9:12].decode() if self.headers[8:9] == b" " else ""

    @property
    def description(self) -> str:
        """What follows the status."""
        return self.headers.partition(b"\r\n")[0][13:].decode(errors="replace")

    def read_headers(self) -> Mapping[str, str]:
        """Parse the headers; each call does it anew."""
        return read_headers(self.headers)


def read_headers(block: bytes) -> dict[str, str]:
    """Parse a block: the line with version and perhaps a status, then a line for each header."""
    found: dict[str, str] = {}
    for line in block.removeprefix(_VERSION).split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found[name.strip().decode(errors="replace")] = value.strip().decode(errors="replace")
    return found


class WireClient(Client):
    """A nats-py client whose subscriptions made by `feed` bypass its queues."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: dict[int, Callable[[Frame], None]] = {}

    async def feed(self, subject: str, handler: Callable[[Frame], None]) -> Subscription:
        """Call `handler` for each message, in order, from the reading task; it must be quick."""
        # `subscribe` takes the next number before it first awaits; a message may come before it returns.
        self._handlers[self._sid + 1] = handler
        return await self.subscribe(subject)  # pyright: ignore[reportUnknownMemberType]

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._handlers.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        handler = self._handlers.get(sid)
        if handler is None:
            # Of a subscription that was just ended.
            return
        try:
            handler(Frame(subject.decode(), reply.decode(), data, headers or b""))
        except Exception:
            # Beyond this line it would end nats-py's reading task.
            log.exception("handler failed", subject=subject.decode(errors="replace"))
