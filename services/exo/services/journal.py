"""Writes this node's facts to the event log: in order, each exactly once, through any loss of the broker.

Used by every service of a node that states facts; decisions are written by the master itself.
"""

import asyncio
from collections.abc import Mapping

import structlog

from exo.broker.bus import Ack, Bus
from exo.broker.errors import BusUnavailableError, PayloadTooLargeError, StreamFullError
from exo.services.clock import Clock
from exo.streams.codec import encode
from exo.streams.envelope import headers_of_fact
from exo.streams.events import Envelope, Fact, subject_of_event
from exo.streams.ids import BootId, NodeId

log = structlog.get_logger(__name__)

_RETRY = 0.2
_RETRY_FULL = 2.0


async def append_event(bus: Bus, envelope: Envelope, headers: Mapping[str, str], *, clock: Clock) -> Ack:
    """Append one event, again and again with the same message id until the server has it.

    A full log is reported and tried again. `ConflictError` and `PayloadTooLargeError` pass through.
    """
    subject, payload = subject_of_event(envelope.event), encode(envelope)
    while True:
        try:
            return await bus.append(subject, payload, headers=headers)
        except BusUnavailableError:
            await clock.sleep(_RETRY)
        except StreamFullError:
            log.error("the event log is full; nothing can change until there is room", subject=subject)  # noqa: TRY400
            await clock.sleep(_RETRY_FULL)


class Journal:
    """A queue with one writer: facts reach the log in the order in which they were recorded."""

    def __init__(self, bus: Bus, *, clock: Clock, node: NodeId, boot: BootId) -> None:
        self._bus = bus
        self._clock = clock
        self._node = node
        self._boot = boot
        self._count = 0
        self._queue: asyncio.Queue[Envelope] = asyncio.Queue()

    def record(self, fact: Fact) -> None:
        """Queue a fact; it is dated now and written as soon as the broker takes it."""
        self._count += 1
        envelope = Envelope(
            id=f"{self._boot}-{self._count}",
            at=self._clock.now(),
            actor=self._node,
            boot=self._boot,
            event=fact,
        )
        self._queue.put_nowait(envelope)

    async def drain(self, *, timeout: float) -> None:
        """Wait until everything recorded so far is in the log; `TimeoutError` when it takes too long."""
        async with asyncio.timeout(timeout):
            await self._queue.join()

    async def run(self) -> None:
        """Write for ever."""
        while True:
            envelope = await self._queue.get()
            try:
                await append_event(self._bus, envelope, headers_of_fact(envelope.id), clock=self._clock)
            except PayloadTooLargeError as error:
                log.exception("a fact is too large and is lost", fact=type(envelope.event).__name__, size=error.size)
            finally:
                self._queue.task_done()
