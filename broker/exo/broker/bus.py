"""The `Bus` port: all that exo asks of a message broker.

Services, the gateway and ops are written against it. `NatsBus` is the real thing, `MemoryBus` the
double; one conformance suite holds for both. Every call that waits for the server raises
`BusUnavailableError` rather than hang.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

Headers = Mapping[str, str]


class Ack(msgspec.Struct, frozen=True):
    """A stream has stored a message at `sequence`; `duplicate` when it had it already."""

    stream: str
    sequence: int
    duplicate: bool = False


class Delivery(msgspec.Struct, frozen=True):
    """A message from a core subscription; `reply` is empty when no answer is expected."""

    subject: str
    payload: bytes
    reply: str = ""


class StoredMessage(msgspec.Struct, frozen=True):
    """A message at its place in a stream. `time` is Unix time in ms of the server's clock."""

    subject: str
    sequence: int
    payload: bytes
    time: int = 0


class KeyEntry(msgspec.Struct, frozen=True):
    """The newest value of a key; `revision` is what compare-and-set expects. Empty values count as absent."""

    key: str
    value: bytes
    revision: int


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream holds. Sizes in bytes; `time` is Unix time in ms of the server's clock, now."""

    name: str
    messages: int
    bytes: int
    first_sequence: int
    last_sequence: int
    consumers: int
    time: int = 0


class Subscription(Protocol):
    """A running subscription."""

    async def stop(self) -> None:
        """Stop delivery; safe to call twice."""
        ...


class WorkItem(Protocol):
    """One message of a work queue, held until it is settled."""

    @property
    def message(self) -> StoredMessage: ...
    @property
    def deliveries(self) -> int:
        """How often it was delivered, this time included."""
        ...

    async def ack(self) -> None:
        """Done: remove it."""
        ...

    async def nak(self, *, delay: float = 0) -> None:
        """Try again after `delay` seconds."""
        ...

    async def term(self, reason: str) -> None:
        """Give up: copy it to the poison stream with the reason, then remove it."""
        ...

    async def in_progress(self) -> None:
        """Ask for another `ack_wait`."""
        ...


class Bus(Protocol):
    """A connection to the broker."""

    @property
    def connected(self) -> bool: ...

    def on_connection_change(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        """Call `listener(connected)` at each loss and return of the connection; gives a function that ends it."""
        ...

    # Core: at most once, to whoever listens now.

    async def publish(self, subject: str, payload: bytes) -> None:
        """Send without waiting; buffered over a short loss of the connection."""
        ...

    async def flush(self) -> None:
        """Wait until the server has everything that was published."""
        ...

    async def subscribe(self, subject: str, handler: Callable[[Delivery], None]) -> Subscription:
        """Call `handler` for each message, in order, on the event loop; it must be quick and never raises."""
        ...

    async def request(self, subject: str, payload: bytes, *, timeout: float) -> bytes:
        """Ask one responder. `NoResponderError` at once when nobody listens. `timeout` in seconds."""
        ...

    async def respond(self, subject: str, handler: Callable[[bytes], Awaitable[bytes]]) -> Subscription:
        """Answer requests on a subject, several at a time."""
        ...

    # Streams: acknowledged and stored.

    async def append(self, subject: str, payload: bytes, *, headers: Headers | None = None) -> Ack:
        """Store a message; headers as of `exo.streams.envelope`.

        `ConflictError` on a lost compare-and-set, `StreamFullError`, `PayloadTooLargeError`.
        """
        ...

    async def get_last(self, stream: str, subject: str) -> StoredMessage | None:
        """Give the newest message on a subject (no wildcards), or None."""
        ...

    async def read(self, stream: str, subject: str, *, start: int = 1, limit: int = 512) -> list[StoredMessage]:
        """Give up to `limit` messages on a subject (wildcards allowed) from sequence `start` on, by direct get."""
        ...

    async def purge(self, stream: str, *, subject: str = "", below: int = 0) -> None:
        """Drop messages: of one subject, and/or with sequences below `below`."""
        ...

    async def stream_info(self, stream: str) -> StreamInfo: ...

    async def stream_infos(self) -> list[StreamInfo]: ...

    def follow(self, stream: str, *, after: int) -> AsyncGenerator[StoredMessage]:
        """Give every message with a sequence above `after`, in order, for ever, without a gap.

        Survives reconnects and repairs gaps itself. Raises `NotFoundError` once `after` lies before
        the stream's first message (the caller must load a snapshot first).
        """
        ...

    def work(self, stream: str, *, name: str, ack_wait: float = 5, max_deliver: int = 5) -> AsyncGenerator[WorkItem]:
        """Give messages of a work queue through the durable consumer `name`, one at a time, for ever.

        A message delivered more than `max_deliver` times goes to the poison stream.
        """
        ...

    # Keys.

    async def put(self, bucket: str, key: str, value: bytes, *, revision: int | None = None, ttl: int = 0) -> int:
        """Write a key, gives its revision.

        With `revision`, only if that is still the newest one (0: only if absent), else `ConflictError`.
        `ttl` in whole seconds, 0 for ever; each write sets it anew.
        """
        ...

    async def get(self, bucket: str, key: str) -> KeyEntry | None:
        """Give the newest value; None when absent, deleted or expired."""
        ...

    async def delete(self, bucket: str, key: str) -> None: ...

    async def keys(self, bucket: str) -> dict[str, KeyEntry]:
        """Give all keys that have a value."""
        ...

    async def close(self) -> None:
        """Send what is buffered, then disconnect; safe to call twice."""
        ...
