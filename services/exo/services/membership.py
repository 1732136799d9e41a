"""A node's place in the cluster: joining, being seen to be present, reporting, leaving.

Every node runs it, with or without a worker.
"""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from exo.broker.bus import Bus
from exo.broker.errors import BrokerError, BusUnavailableError
from exo.services.clock import Clock
from exo.services.journal import Journal
from exo.services.projection import Projection
from exo.services.service import run_until
from exo.streams.codec import encode
from exo.streams.downloads import ModelReport
from exo.streams.events import EpochStarted, NodeJoined, NodeLeft, NodeReported, NodeTimedOut, Recorded
from exo.streams.ids import BootId, NodeId
from exo.streams.layout import NODES, PRESENCE_RENEWAL, PRESENCE_TTL
from exo.streams.nodes import NodeFacts, RunnerReport
from exo.streams.state import State

log = structlog.get_logger(__name__)


class _Presence(msgspec.Struct, frozen=True):
    boot: BootId
    name: str


class Membership:
    """Joins at once when made to `run`; `leave` is the last thing a node writes."""

    def __init__(
        self,
        bus: Bus,
        *,
        projection: Projection,
        journal: Journal,
        node: NodeId,
        boot: BootId,
        facts: NodeFacts,
        runners: Callable[[], tuple[RunnerReport, ...]],
        models: Callable[[], tuple[ModelReport, ...]],
        clock: Clock,
    ) -> None:
        self._bus = bus
        self._projection = projection
        self._journal = journal
        self._node = node
        self._boot = boot
        self._facts = facts
        self._runners = runners
        self._models = models
        self._clock = clock
        self._reported_in: tuple[str, int] | None = None
        self._left = False

    async def join(self) -> None:
        """Become present and say so in the log; `run` must follow within the TTL."""
        await self._renew()
        state = self._projection.state
        self._reported_in = (state.session, state.epoch)
        self._journal.record(NodeJoined(node=self._node, facts=self._facts))
        self._report()

    async def run(self) -> None:
        """Stay present until cancelled."""
        stop_listening = self._projection.on_event(self._notice)
        stop_hearing = self._bus.on_connection_change(self._hear)
        stop_meeting = self._projection.on_session(lambda _old, new: self._reconsider(new))
        self._wake = asyncio.Event()
        try:
            while True:
                await self._renew_or_warn()
                # An epoch that began inside a State that was loaded anew is told by no event.
                self._reconsider(self._projection.state)
                await self._pause()
        finally:
            stop_listening()
            stop_hearing()
            stop_meeting()

    async def leave(self) -> None:
        """Say that the node is gone, after everything else was said."""
        self._left = True
        self._journal.record(NodeLeft(node=self._node))
        if not self._bus.connected:
            return
        try:
            await self._bus.delete(NODES.name, self._node)
        except BrokerError:
            log.warning("the presence of this node could not be withdrawn; it will expire")

    async def _renew(self) -> None:
        presence = _Presence(self._boot, self._facts.name)
        await self._bus.put(NODES.name, self._node, encode(presence), ttl=PRESENCE_TTL)

    async def _renew_or_warn(self) -> None:
        try:
            if not self._left:
                await self._renew()
        except BusUnavailableError:
            log.debug("the presence of this node could not be renewed")

    async def _pause(self) -> None:
        """Wait for the next renewal, or less long when the connection has come back."""
        try:
            await run_until(self._wake, self._clock.sleep(PRESENCE_RENEWAL))
        finally:
            self._wake.clear()

    def _hear(self, connected: bool) -> None:  # noqa: FBT001 - the Bus port's listener
        if connected:
            self._wake.set()

    def _notice(self, recorded: Recorded, state: State) -> None:
        event = recorded.envelope.event if recorded.envelope else None
        if isinstance(event, EpochStarted):
            self._reconsider(state)
        elif isinstance(event, NodeTimedOut) and event.node == self._node and not self._left:
            log.warning("the cluster had given this node up; it joins again")
            self._report_in(state)

    def _reconsider(self, state: State) -> None:
        """Report once in each epoch of each session: what was said last may have been lost with a hub."""
        if not self._left and (state.session, state.epoch) != self._reported_in:
            self._reported_in = (state.session, state.epoch)
            self._report_in(state)

    def _report_in(self, state: State) -> None:
        known = state.nodes.get(self._node)
        if known is None or not known.online or known.boot != self._boot:
            self._journal.record(NodeJoined(node=self._node, facts=self._facts))
        self._report()

    def _report(self) -> None:
        runners = self._runners()
        tasks = tuple(sorted(task for runner in runners for task in runner.tasks))
        self._journal.record(NodeReported(node=self._node, runners=runners, models=self._models(), tasks=tasks))
