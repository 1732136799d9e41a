"""One answer on its way from the token plane to one client.

A `Relay` is fed by its core subscription and by repairs, and read by whoever writes the response.
It ends in exactly one terminal chunk. `RelayHub` opens, repairs and closes it; a relay has no task
of its own, so that 500 of them cost nothing while they are silent.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

import structlog

from exo.broker.bus import Delivery, Subscription
from exo.gateway.assembly import Assembly
from exo.streams.chunks import Chunk, Failed, Rejected
from exo.streams.codec import CodecError, decode_chunk
from exo.streams.codes import Code
from exo.streams.ids import SessionId, TaskId
from exo.streams.tasks import EndedTask

log = structlog.get_logger(__name__)

_LOSSES: Final = frozenset({Code.NODE_RESTARTED, Code.NODE_TIMED_OUT, Code.INSTANCE_REMOVED, Code.CLUSTER_MERGED})


class Keeper(Protocol):
    """Who has submitted the request and can do so again."""

    def note_begun(self, task: TaskId) -> None:
        """Take note of the first chunk of the answer."""
        ...

    def note_output(self, task: TaskId) -> None:
        """Take note that output is out: from now on the answer cannot be begun anew."""
        ...

    def begin_anew(self, ended: EndedTask) -> bool:
        """See to it that a request which ended before any output is done after all; gives whether it may be."""
        ...


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
        keeper: Keeper | None,
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
        self.is_lost = False
        """Whether the runner's last word was that the node or the instance goes, before any output."""
        self.closed = False
        self.gone = False
        self.cut: Callable[[], None] | None = None
        self.blocked_since = 0.0
        self.last_sent = self.opened_at
        self._on_gap = on_gap
        self.keeper = keeper
        self._had_output = False
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
        if self._is_held_back(chunk):
            self.is_lost = True
        elif self.assembly.add(chunk, self._ready):
            self.wake()
            self._tell_keeper()

    def _is_held_back(self, chunk: Chunk) -> bool:
        """Whether an end may be none, since nothing of the answer is out yet: State tells, and the keeper decides."""
        is_end = isinstance(chunk, Failed | Rejected) and chunk.code in _LOSSES
        return is_end and self.keeper is not None and not self.assembly.output_begun

    def _tell_keeper(self) -> None:
        if self.keeper is None or self._had_output:
            return
        self.keeper.note_begun(self.task)
        if self.assembly.output_begun:
            self._had_output = True
            self.keeper.note_output(self.task)

    def expect(self, attempt: int) -> None:
        """Take nothing more of the attempts before this one, which somebody else makes."""
        self.is_lost = False
        self.assembly.expect(attempt)

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
