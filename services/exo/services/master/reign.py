"""`Reign`: one master's time in office, fenced by its own epoch record in the log.

Writes decisions one at a time; each is folded before the next one may be made. A write that the
server refuses ends the reign: somebody else began a newer one. Its connection belongs to one hub and
is never moved, so that it cannot write into the log of another.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog

from exo.broker.bus import Bus
from exo.broker.errors import ConflictError, NotFoundError
from exo.services.clock import Clock
from exo.services.journal import append_event
from exo.services.log_check import read_epoch
from exo.services.projection import Projection
from exo.streams.codec import hash_state
from exo.streams.envelope import headers_of_decision, headers_of_epoch
from exo.streams.events import Decision, Envelope, EpochStarted
from exo.streams.ids import BootId, CommandId, NodeId, SessionId
from exo.streams.layout import EVENTS
from exo.streams.state import State
from exo.streams.subjects import EPOCH

log = structlog.get_logger(__name__)

_FOLD_TIMEOUT = 30.0


class DeposedError(Exception):
    """Raised when another master has begun an epoch."""


class Reign:
    """Begin one with `begin`."""

    def __init__(self, bus: Bus, projection: Projection, *, clock: Clock, node: NodeId, boot: BootId) -> None:
        self._bus = bus
        self._projection = projection
        self._clock = clock
        self._node = node
        self._boot = boot
        self._lock = asyncio.Lock()
        self._written = 0
        self.session = SessionId("")
        self.epoch = 0
        self.epoch_sequence = 0
        self.began = clock.monotonic()

    @property
    def state(self) -> State:
        return self._projection.state

    async def begin(self) -> None:
        """Append the next epoch record by compare-and-set and fold up to it.

        `DeposedError` when somebody was first, `NotFoundError` when nobody has begun a session here.
        """
        newest = await self._bus.get_last(EVENTS.name, EPOCH)
        before = read_epoch(newest)
        if newest is None or before is None:
            raise NotFoundError("no session has begun in this log")
        self.session = before.session
        await self._folded(newest.sequence)
        self.epoch = max(before.epoch, self.state.epoch) + 1
        await self._write_epoch(newest.sequence)
        self.began = self._clock.monotonic()
        log.info("this node is the master now", epoch=self.epoch, session=self.session)

    async def renew(self) -> None:
        """Write the same epoch again, so that everything before it can be cut from the log."""
        async with self._lock:
            await self._write_epoch(self.epoch_sequence)

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[State]:
        """Hold the right to decide: inside, State holds every earlier decision."""
        async with self._lock:
            yield self.state

    async def write(self, decision: Decision, *, cause: CommandId | None = None) -> None:
        """Append a decision and fold it; only inside `turn`."""
        self._written += 1
        identifier = f"decision-{cause}" if cause else f"{self._boot}-e{self.epoch}-{self._written}"
        envelope = self._envelope(identifier, decision, cause=cause)
        headers = headers_of_decision(identifier, epoch_sequence=self.epoch_sequence)
        try:
            ack = await append_event(self._bus, envelope, headers, clock=self._clock)
        except ConflictError as error:
            raise DeposedError(f"the decision was refused: {error}") from error
        await self._folded(ack.sequence)

    async def _write_epoch(self, last: int) -> None:
        state = self.state
        event = EpochStarted(
            session=self.session,
            epoch=self.epoch,
            base=state.applied,
            state_hash=hash_state(state),
            master=self._node,
        )
        identifier = f"{self._boot}-epoch-{self.epoch}-{last}"
        headers = headers_of_epoch(identifier, last_epoch_sequence=last)
        try:
            ack = await append_event(self._bus, self._envelope(identifier, event), headers, clock=self._clock)
        except ConflictError as error:
            raise DeposedError(f"another master was first: {error}") from error
        self.epoch_sequence = ack.sequence
        await self._folded(ack.sequence)

    async def _folded(self, sequence: int) -> None:
        def is_folded(state: State) -> bool:
            # Sequences of another session say nothing.
            return state.session == self.session and state.applied >= sequence

        await self._projection.wait(is_folded, timeout=_FOLD_TIMEOUT)

    def _envelope(self, identifier: str, event: Decision | EpochStarted, *, cause: CommandId | None = None) -> Envelope:
        return Envelope(
            id=identifier,
            at=self._clock.now(),
            actor=self._node,
            boot=self._boot,
            epoch=self.epoch,
            cause=cause,
            event=event,
        )
