"""The chunks of this node's answers: published as they come, kept for a while, published again when needed.

The broker holds the token plane in memory; when it is restarted the node that wrote an answer writes
it anew under the same indices. A fact about the end of a task goes to the log only after the broker
has all its chunks.
"""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from exo.broker.bus import Bus
from exo.broker.errors import BrokerError, BusUnavailableError
from exo.services.clock import Clock
from exo.services.worker.ends import End
from exo.streams import subjects
from exo.streams.chunks import TERMINAL, Chunk, Done, Failed, Rejected
from exo.streams.codec import encode
from exo.streams.events import TaskFailed, TaskFinished
from exo.streams.ids import NodeId, TaskId

log = structlog.get_logger(__name__)

KEEP_ENDED = 15 * 60.0
"""Seconds for which the chunks of an ended task are kept."""
KEEP_BYTES = 64 << 20
"""Above this the oldest ended tasks are dropped first; unfinished ones never."""
_SEPARATOR = b"\n"
_RETRY = 0.2
_DRAIN_TIMEOUT = 3.0


class _Answer(msgspec.Struct, kw_only=True, gc=False):
    subject: str
    chunks: bytearray
    """Encoded chunks, one per line: JSON holds no raw line break."""
    next_index: int = 0
    attempt: int = 1
    ended_at: float = 0


class TokenBook:
    """Everything published and not yet forgotten."""

    def __init__(self, node: NodeId, *, clock: Clock, keep_bytes: int = KEEP_BYTES) -> None:
        self._node = node
        self._clock = clock
        self._keep_bytes = keep_bytes
        self._running: dict[TaskId, _Answer] = {}
        self._ended: dict[TaskId, _Answer] = {}
        """In the order of their ends."""
        self.bytes = 0

    def add(self, task: TaskId, chunk: Chunk) -> tuple[str, bytes] | None:
        """Keep a chunk and give its subject and payload; None for one after the end of its task."""
        if task in self._ended:
            return None
        answer = self._running.get(task)
        if answer is None:
            answer = _Answer(subject=subjects.tokens(self._node, task), chunks=bytearray())
            self._running[task] = answer
        payload = encode(chunk)
        answer.chunks += payload
        answer.chunks += _SEPARATOR
        answer.next_index, answer.attempt = chunk.index + 1, chunk.attempt
        self.bytes += len(payload) + 1
        if isinstance(chunk, TERMINAL):
            answer.ended_at = self._clock.monotonic()
            self._ended[task] = self._running.pop(task)
            self._forget_old()
        return answer.subject, payload

    def break_off(self, task: TaskId, *, attempt: int, code: str, message: str) -> Chunk:
        """Give the terminal chunk of a task that its runner will not end."""
        answer = self._running.get(task)
        if answer is None:
            return Rejected(attempt, 0, code, message)
        return Failed(answer.attempt, answer.next_index, code, message)

    def everything(self) -> list[tuple[str, list[bytes]]]:
        """Give all that is kept, by subject, in order."""
        self._forget_old()
        kept = [*self._ended.values(), *self._running.values()]
        return [(answer.subject, bytes(answer.chunks).split(_SEPARATOR)[:-1]) for answer in kept]

    def __len__(self) -> int:
        """Count the tasks."""
        return len(self._running) + len(self._ended)

    def _forget_old(self) -> None:
        horizon = self._clock.monotonic() - KEEP_ENDED
        while self._ended:
            task, answer = next(iter(self._ended.items()))
            if answer.ended_at >= horizon and self.bytes <= self._keep_bytes:
                return
            self.bytes -= len(answer.chunks)
            del self._ended[task]


class TokenPublisher:
    """Writes chunks to the token plane and then the facts about their ends."""

    def __init__(
        self,
        bus: Bus,
        book: TokenBook,
        *,
        node: NodeId,
        clock: Clock,
        on_end: Callable[[End], None],
    ) -> None:
        self._bus = bus
        self._book = book
        self._node = node
        self._clock = clock
        self._on_end = on_end
        self._ends: list[End] = []
        self._is_stale = False
        self._due = asyncio.Event()

    async def publish(self, task: TaskId, chunk: Chunk) -> bool:
        """Publish one chunk; True when it ended its task."""
        kept = self._book.add(task, chunk)
        if kept is None:
            log.debug("a chunk came after the end of its task", task=task, chunk=type(chunk).__name__)
            return False
        try:
            await self._bus.publish(*kept)
        except BusUnavailableError:
            self._refresh()
        except BrokerError:
            log.exception("a chunk cannot be published", task=task)
        if not isinstance(chunk, TERMINAL):
            return False
        self._ends.append(End(_describe_end(self._node, task, chunk), chunk.attempt))
        self._due.set()
        return True

    async def run(self) -> None:
        """Record ends, and publish everything again after each return of the connection; until cancelled."""
        stop_listening = self._bus.on_connection_change(self._notice)
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                await self._settle()
        finally:
            stop_listening()

    async def drain(self) -> None:
        """Bring every end that is due into the journal, unless the broker stays away; at shutdown, instead of `run`."""
        try:
            async with asyncio.timeout(_DRAIN_TIMEOUT):
                await self._settle()
        except TimeoutError:
            log.warning("the ends of some requests did not reach the broker")

    async def _settle(self) -> None:
        while self._is_stale or self._ends:
            try:
                if self._is_stale:
                    self._is_stale = False
                    await self._publish_again()
                ends, self._ends = self._ends, []
                await self._flush(ends)
            except BusUnavailableError:
                await self._clock.sleep(_RETRY)

    async def _flush(self, ends: list[End]) -> None:
        try:
            await self._bus.flush()
        except BusUnavailableError:
            self._is_stale, self._ends = True, ends + self._ends
            raise
        if self._is_stale:
            # The connection was lost and came back meanwhile: these chunks may be on neither side.
            self._ends = ends + self._ends
            return
        for end in ends:
            self._on_end(end)

    async def _publish_again(self) -> None:
        everything = self._book.everything()
        log.info("answers are published again", tasks=len(everything))
        try:
            for subject, payloads in everything:
                for payload in payloads:
                    await self._bus.publish(subject, payload)
                await self._bus.flush()
        except BusUnavailableError:
            self._is_stale = True
            raise

    def _notice(self, connected: bool) -> None:  # noqa: FBT001 - the Bus port's listener
        if connected:
            self._refresh()

    def _refresh(self) -> None:
        if len(self._book):
            self._is_stale = True
            self._due.set()


def _describe_end(node: NodeId, task: TaskId, chunk: Done | Rejected | Failed) -> TaskFinished | TaskFailed:
    if isinstance(chunk, Done):
        return TaskFinished(node=node, task=task, last_index=chunk.index, reason=chunk.reason, usage=chunk.usage)
    return TaskFailed(node=node, task=task, last_index=chunk.index, code=chunk.code, message=chunk.message)
