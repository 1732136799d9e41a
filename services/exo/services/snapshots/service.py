"""Keeps the event log short: every few thousand events State is stored and what lies before is cut off.

Run by the master beside its other loops; followers that are cut off load the snapshot.
"""

from collections.abc import Callable
from typing import Protocol

import structlog

from exo.broker.bus import Bus
from exo.services.snapshots.store import save_snapshot
from exo.streams.layout import EVENTS
from exo.streams.state import State

log = structlog.get_logger(__name__)

EVERY = 5000
"""Events between two snapshots."""
KEPT = 1000
"""Events before a snapshot that stay in the log, for followers that lag and people who look."""


class Follower(Protocol):
    """The projection, as far as it matters here."""

    @property
    def state(self) -> State: ...

    async def wait(self, predicate: Callable[[State], bool], *, timeout: float | None = None) -> State: ...


class Office(Protocol):
    """The reign, as far as it matters here."""

    @property
    def epoch_sequence(self) -> int: ...

    async def renew(self) -> None:
        """Write the epoch record again and fold it."""
        ...


class Snapshots:
    """Cuts the log during one reign."""

    def __init__(self, bus: Bus, *, projection: Follower, every: int = EVERY, kept: int = KEPT) -> None:
        self._bus = bus
        self._projection = projection
        self._every = every
        self._kept = kept

    async def run(self, reign: Office) -> None:
        """Watch until cancelled."""
        while True:
            first = (await self._bus.stream_info(EVENTS.name)).first_sequence
            due = first + self._kept + self._every
            await self._projection.wait(lambda state, due=due: state.applied >= due)
            await self.cut(reign)

    async def cut(self, reign: Office) -> None:
        """Store State, then drop what lies more than `kept` events before this epoch's newest record."""
        # The record that fences every decision must stay in the log, so a fresh one comes first.
        await reign.renew()
        state = self._projection.state
        await save_snapshot(self._bus, state)
        below = reign.epoch_sequence - self._kept
        if below > 1:
            await self._bus.purge(EVENTS.name, below=below)
        log.info("the event log was cut", snapshot=state.applied, below=max(below, 0))
