"""Nobody has timed out before a master has looked for long enough itself: after a move nobody could be present."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from exo.broker.memory import MemoryBus
from exo.services.catalog.service import Catalog
from exo.services.clock import FakeClock
from exo.services.master.reign import Reign
from exo.services.master.service import SWEEP_INTERVAL, Master
from exo.services.master.sweep import ABSENCE, CERTAINTY
from exo.services.projection import Projection
from exo.services.standby import begin_session
from exo.services.telemetry.gauges import Gauges
from exo.streams.codec import encode
from exo.streams.ids import NodeId, SessionId
from exo.streams.layout import EVENTS, NODES
from exo.streams.state import State
from exo.streams.subjects import telemetry
from exo.streams.telemetry import Sample
from support.links import FixedLink
from support.services import BOOT, NODE, eventually, joined_state, make_memory

OTHER = NodeId("node-b")
CLOSE = SWEEP_INTERVAL / 2
"""Seconds; the sweep looks at most this much later than it could."""


class Office:
    """A hub of a new session in which nobody is present, and the one who rules there."""

    def __init__(self, known: State) -> None:
        self.clock = FakeClock()
        self.bus = MemoryBus()
        self.link = FixedLink(self.bus, NODE)
        self.gauges = Gauges(self.bus, clock=self.clock)
        self.known = known
        self.projection = Projection(self.bus, known=known, clock=self.clock)

    def is_online(self, node: NodeId) -> bool:
        return self.projection.state.nodes[node].online

    async def pass_time(self, seconds: float) -> None:
        """Let time pass in steps, in which the sweep looks."""
        for _ in range(round(seconds / CLOSE)):
            await self.clock.advance(CLOSE)
            await asyncio.sleep(0.01)

    @asynccontextmanager
    async def reigning(self) -> AsyncGenerator[None]:
        """Rule until the body ends."""
        reign = Reign(self.bus, self.projection, clock=self.clock, node=NODE, boot=BOOT)
        await reign.begin()
        master = Master(
            self.bus,
            reign,
            link=self.link,
            projection=self.projection,
            gauges=self.gauges,
            catalog=Catalog(()),
            clock=self.clock,
        )
        task = asyncio.create_task(master.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def new_session() -> AsyncGenerator[Office]:
    known = joined_state(node=OTHER, state=joined_state())
    office = Office(known)
    office.bus.server.stream(EVENTS.name).last_sequence = known.applied
    await begin_session(office.bus, known, session=SessionId("s-new"), node=NODE, boot=BOOT, clock=office.clock)
    task = asyncio.create_task(office.projection.run())
    try:
        await office.projection.caught_up(timeout=5)
        yield office
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_offline(office: Office, node: NodeId) -> None:
    async def look() -> bool:
        return not office.is_online(node)

    await eventually(look, what="a node that timed out")


async def test_nobody_times_out_soon_after_a_session_or_a_reign_began() -> None:
    async with new_session() as office:
        async with office.reigning():
            await office.pass_time(ABSENCE - 2 * CLOSE)
            assert office.is_online(OTHER)
        # Another reign looks anew: what an earlier one saw does not count.
        async with office.reigning():
            await office.pass_time(ABSENCE - 2 * CLOSE)
            assert office.is_online(OTHER)
            await office.pass_time(2 * SWEEP_INTERVAL)
            await until_offline(office, OTHER)


async def test_a_node_that_returns_in_time_stays() -> None:
    async with new_session() as office, office.reigning():
        await office.pass_time(ABSENCE - 2 * CLOSE)
        await office.bus.put(NODES.name, OTHER, b"{}")
        await office.pass_time(2 * SWEEP_INTERVAL)
        assert office.is_online(OTHER)


async def test_a_node_that_is_gone_for_certain_times_out_although_its_key_is_there() -> None:
    async with new_session() as office, office.reigning():
        for node in (NODE, OTHER):
            await office.bus.put(NODES.name, node, b"{}")
        office.link.silent = {OTHER}
        await office.pass_time(2 * SWEEP_INTERVAL)
        assert office.is_online(OTHER)
        office.link.lost = {OTHER: CERTAINTY}
        await office.pass_time(2 * SWEEP_INTERVAL)
        await until_offline(office, OTHER)
        assert office.is_online(NODE)


async def test_a_node_that_is_heard_on_the_bus_is_not_gone_whatever_refuses() -> None:
    async with new_session() as office:
        listening = asyncio.create_task(office.gauges.run())
        await asyncio.sleep(0)
        async with office.reigning():
            await office.bus.put(NODES.name, OTHER, b"{}")
            for _ in range(6):
                sample = encode(Sample(interval=1, taken_at=0, gauge=make_memory()))
                await office.bus.publish(telemetry(OTHER, "memory"), sample)
                office.link.lost = {OTHER: CERTAINTY}
                await office.pass_time(CLOSE)
            assert office.is_online(OTHER)
            await office.pass_time(4 * SWEEP_INTERVAL)
            await until_offline(office, OTHER)
        listening.cancel()
