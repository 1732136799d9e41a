"""One answer on its way from the token plane to one client.

A `Relay` is fed by its core subscription and by repairs, and read by whoever writes the response.
It ends in exactly one terminal chunk. `RelayHub` opens, repairs and closes it; a relay has no task
of its own, so that 500 of them cost nothing while they are silent.
"""

import asyncio
from collections.abc import Callable
from time import monotonic

import structlog

from exo.broker.bus import Delivery, Subscription
from exo.gateway.assembly import Assembly
from exo.streams.chunks import Chunk
from exo.streams.codec import CodecError, decode_chunk
from exo.streams.ids import SessionId, TaskId

log = structlog.get_logger(__name__)


class Relay:
    """The chunks of one task, in order, for one reader.

    With `cancels`, a reader that leaves early takes the request with it; `resumed` is one that was
    rendered before.
    """

    def __init__(
        self,
        task: TaskId,
        *,
        on_gap: "Callable[[Relay], None]",
        on_begun: Callable[[TaskId], None] | None,
        cancels: bool,
        resumed: bool,
    ) -> None:
        self.task = task
        self.cancels = cancels
        self.resumed = resumed
        self.unread_since: float | None = monotonic()
        """Since when nobody waits for this relay; None while somebody does."""
        self.assembly = Assembly()
        self.opened_at = monotonic()
        self.last_arrival = self.opened_at
        self.silence_allowed = 2.0
        self.session = SessionId("")
        """Of State when it was opened."""
        self.subscription: Subscription | None = None
        self.scanned_to = 0
        """Sequence of the token stream up to which nothing of this task can have been missed."""
        self.repair_wanted = False
        self.repairing = False
        self.settling = False
        """Whether its end is being looked for: its task has ended."""
        self.closed = False
        self.gone = False
        self.cut: Callable[[], None] | None = None
        self.blocked_since = 0.0
        self.last_sent = self.opened_at
        self._on_gap = on_gap
        self._on_begun = on_begun
        self._ready: list[Chunk] = []
        self._waiter: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether the terminal chunk has been handed out or waits to be."""
        return self.assembly.ended

    @property
    def backlog(self) -> int:
        """Chunks that wait for the reader."""
        return len(self._ready)

    def receive(self, delivery: Delivery) -> None:
        """Take a live message; the handler of the core subscription."""
        self.feed(delivery.payload)
        if self.assembly.has_gap and not self.repairing:
            self._on_gap(self)

    def feed(self, payload: bytes) -> None:
        """Take one encoded chunk, new or known."""
        try:
            chunk = decode_chunk(payload)
        except CodecError:
            log.warning("a chunk cannot be read", task=self.task, exc_info=True)
            return
        self.last_arrival = monotonic()
        self.silence_allowed = 2.0
        if self.assembly.add(chunk, self._ready):
            self.wake()
            if self._on_begun is not None:
                self._on_begun(self.task)
                self._on_begun = None

    def fail(self, code: str, message: str) -> None:
        """End the answer with an error, unless it has ended."""
        if self.assembly.fail(code, message, self._ready):
            self.wake()

    def hang_up(self) -> None:
        """Note that the client is gone."""
        self.gone = True
        self.wake()

    def wake(self) -> None:
        """Let the reader look."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self) -> list[Chunk]:
        """Give everything that is ready, without waiting."""
        if not self._ready:
            return []
        ready, self._ready = self._ready, []
        return ready

    async def wait(self) -> None:
        """Wait until something is ready, the client is gone, or somebody woke the reader."""
        if self._ready or self.gone:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
