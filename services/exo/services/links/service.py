"""Measures the links of this node to all others, one at a time, and states them as a fact when they change.

Latency each minute, bandwidth when something has changed and every ten minutes or more. Runs on every
node; only measures from it, so that each direction is somebody's own business.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping

import structlog

from exo.broker.bus import Bus
from exo.broker.errors import BrokerError
from exo.services.clock import Clock
from exo.services.journal import Journal
from exo.services.links.compare import find_news, make_links
from exo.services.links.interfaces import Interface, read_interfaces
from exo.services.links.prober import LinkProber
from exo.services.links.schedule import LATENCY_INTERVAL, Schedule, Turn
from exo.services.projection import Projection
from exo.services.telemetry.apart import run_apart
from exo.services.telemetry.service import publish_gauge
from exo.streams.events import LinksMeasured, NodeJoined, Recorded
from exo.streams.ids import NodeId
from exo.streams.links import Link
from exo.streams.state import State
from exo.streams.telemetry import LinksGauge

log = structlog.get_logger(__name__)

TICK = 5.0
"""Seconds between two looks at what is due, and at the own addresses."""
SETTLE = 2.0
"""Seconds after a change, and after the start: a node that joins is too busy to be measured."""
PATIENCE = 30.0
"""Seconds for one peer."""
_ON_ITS_WAY = 30.0
"""Seconds in which a fact that is not in State yet is not written again."""


async def _read_interfaces() -> Mapping[str, Interface]:
    return await run_apart(read_interfaces)


class Links:
    """`prober` is connected to the other nodes; `interfaces` gives the own addresses."""

    def __init__(
        self,
        bus: Bus,
        *,
        prober: LinkProber,
        projection: Projection,
        journal: Journal,
        node: NodeId,
        clock: Clock,
        interfaces: Callable[[], Awaitable[Mapping[str, Interface]]] = _read_interfaces,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._bus = bus
        self._prober = prober
        self._projection = projection
        self._journal = journal
        self._node = node
        self._clock = clock
        self._read_interfaces = interfaces
        self._schedule = Schedule(draw)
        self._interfaces: Mapping[str, Interface] = {}
        self._links: dict[NodeId, tuple[Link, ...]] = {}
        self._told: tuple[tuple[Link, ...], float] | None = None
        self._doubted: frozenset[NodeId] = frozenset()
        """Peers whose numbers moved once: measured again before it is told, for it may have been a busy moment."""

    async def run(self) -> None:
        """Measure until cancelled."""
        stop_listening = self._projection.on_event(self._notice)
        try:
            await self._clock.sleep(SETTLE)
            while True:
                await self._look_around()
                await self._clock.sleep(TICK)
        finally:
            stop_listening()

    async def _look_around(self) -> None:
        interfaces = await self._read_interfaces()
        if interfaces != self._interfaces:
            self._interfaces = interfaces
            self._schedule.change_all(now=self._clock.monotonic() + SETTLE)
        state = self._projection.state
        online = [node.id for node in state.nodes.values() if node.online and node.id != self._node]
        turns = self._schedule.turns(online, now=self._clock.monotonic(), busy=self._is_busy(state))
        for turn in turns:
            # Asked again each time: a request may have come while another peer was measured.
            if not (turn.bandwidth and self._is_busy(self._projection.state)):
                await self._measure(turn)
        if turns:
            await self._tell()

    async def _measure(self, turn: Turn) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                probed = await self._prober.measure(turn.peer, bandwidth=turn.bandwidth)
        except (BrokerError, TimeoutError, OSError) as error:
            log.debug("a peer cannot be measured", peer=turn.peer, error=str(error) or type(error).__name__)
            probed = ()
        self._schedule.done(turn, now=self._clock.monotonic())
        before = self._links.get(turn.peer) or self._written(turn.peer)
        self._links[turn.peer] = make_links(
            probed, peer=turn.peer, before=before, interfaces=self._interfaces, now=self._clock.now()
        )

    async def _tell(self) -> None:
        measured = tuple(link for links in self._links.values() for link in links)
        await publish_gauge(
            self._bus,
            node=self._node,
            name="links",
            gauge=LinksGauge(links=measured),
            interval=LATENCY_INTERVAL,
            clock=self._clock,
        )
        self._record_news()

    def _record_news(self) -> None:
        written = self._projection.state.links.get(self._node, ())
        news = find_news(written, self._collect())
        doubted = news.moved - self._doubted
        self._doubted = doubted
        for peer in doubted:
            self._schedule.change(peer, now=self._clock.monotonic() + SETTLE)
        links = self._collect(without=doubted)
        if find_news(written, links) and not self._is_on_its_way(links):
            self._journal.record(LinksMeasured(node=self._node, links=links))
            self._told = links, self._clock.monotonic()

    def _collect(self, *, without: frozenset[NodeId] = frozenset()) -> tuple[Link, ...]:
        """Give all links. Those of peers that do not answer now, or in `without`, are as they are written.

        Whether a peer is there is the business of `nodes`.
        """
        peers = sorted(node for node in self._projection.state.nodes if node != self._node)
        newest = {peer: links for peer, links in self._links.items() if peer not in without}
        return tuple(link for peer in peers for link in newest.get(peer) or self._written(peer))

    def _written(self, peer: NodeId) -> tuple[Link, ...]:
        links = self._projection.state.links.get(self._node, ())
        return tuple(link for link in links if link.peer == peer)

    def _is_on_its_way(self, links: tuple[Link, ...]) -> bool:
        if self._told is None or self._clock.monotonic() - self._told[1] > _ON_ITS_WAY:
            return False
        return not find_news(self._told[0], links)

    def _is_busy(self, state: State) -> bool:
        return any(task.node == self._node for task in state.tasks.values())

    def _notice(self, recorded: Recorded, _state: State) -> None:
        event = recorded.envelope.event if recorded.envelope else None
        if isinstance(event, NodeJoined) and event.node != self._node:
            self._schedule.change(event.node, now=self._clock.monotonic() + SETTLE)
