"""Who stands where: the hub's node at once, others when nobody rules, and never over two hubs at a time."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from exo.broker.bus import Bus
from exo.broker.memory import MemoryBus
from exo.broker.memory_server import MemoryServer
from exo.services.clock import FakeClock
from exo.services.master.candidacy import VACANCY, Candidacy
from exo.services.master.election import KEY
from exo.streams.ids import NodeId
from exo.streams.layout import LEASE
from support.links import MovingLink, make_server
from support.services import BOOT, NODE, eventually

OTHER = NodeId("node-b")


class Stand:
    """A candidacy whose reigns only note when they begin and end."""

    def __init__(self, server: MemoryServer, *, hub: NodeId) -> None:
        self.link, self.clock = MovingLink(server, NODE, hub=hub), FakeClock()
        self.reigns: list[MemoryServer] = []
        self.now: list[MemoryServer] = []
        self.most_at_once = 0
        self.slow = asyncio.Event()
        self.slow.set()
        self.candidacy = Candidacy(self.link, node=NODE, boot=BOOT, rule=self._rule, clock=self.clock)

    async def _rule(self, bus: Bus) -> None:
        assert isinstance(bus, MemoryBus)
        self.reigns.append(bus.server)
        self.now.append(bus.server)
        self.most_at_once = max(self.most_at_once, len(self.now))
        try:
            await asyncio.Event().wait()
        finally:
            # The last words of a reign take a while.
            await self.slow.wait()
            self.now.remove(bus.server)

    async def rules(self, server: MemoryServer) -> None:
        async def look() -> bool:
            return self.now == [server]

        await eventually(look, what="a reign over this hub")

    async def sleeps(self) -> None:
        async def look() -> bool:
            return self.clock.sleeping > 0

        await eventually(look, what="a pause")


@asynccontextmanager
async def standing(server: MemoryServer, *, hub: NodeId) -> AsyncGenerator[Stand]:
    stand = Stand(server, hub=hub)
    task = asyncio.create_task(stand.candidacy.run())
    try:
        yield stand
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def holder(server: MemoryServer) -> bytes | None:
    entry = await MemoryBus(server).get(LEASE.name, KEY)
    return entry.value if entry else None


async def test_the_node_of_the_hub_rules_and_gives_the_lease_back() -> None:
    server = MemoryServer()
    async with standing(server, hub=NODE) as stand:
        await stand.rules(server)
        assert await holder(server) is not None
    assert stand.now == []
    assert await holder(server) is None
    assert not stand.link.opened[0].connected


async def test_a_reign_has_wholly_ended_before_one_over_the_next_hub_begins() -> None:
    first, second = MemoryServer(), make_server(base=5)
    async with standing(first, hub=NODE) as stand:
        await stand.rules(first)
        stand.slow.clear()
        stand.link.lose()
        stand.link.move(second, hub=NODE)
        for _ in range(20):
            await asyncio.sleep(0)
        assert stand.reigns == [first]
        stand.slow.set()
        await stand.rules(second)
        assert stand.most_at_once == 1
        assert [bus.connected for bus in stand.link.opened] == [False, True]


async def test_a_node_whose_hub_moves_elsewhere_rules_no_more() -> None:
    first, second = MemoryServer(), make_server(base=5)
    async with standing(first, hub=NODE) as stand:
        await stand.rules(first)
        stand.link.move(second, hub=OTHER)
        await stand.sleeps()
        assert stand.now == []
        assert await holder(second) is None


async def test_another_node_stands_in_when_nobody_rules_for_a_while() -> None:
    server = MemoryServer()
    async with standing(server, hub=OTHER) as stand:
        await stand.sleeps()
        await stand.clock.advance(VACANCY - 1)
        assert stand.reigns == []
        await stand.clock.advance(2)
        await stand.rules(server)


async def test_a_master_that_holds_the_lease_is_left_alone() -> None:
    server = MemoryServer()
    bus = MemoryBus(server)
    await bus.put(LEASE.name, KEY, b"somebody", ttl=3600)
    async with standing(server, hub=OTHER) as stand:
        await stand.sleeps()
        await stand.clock.advance(20)
        await bus.delete(LEASE.name, KEY)
        await stand.clock.advance(VACANCY - 1)
        # Gone for a moment only.
        await bus.put(LEASE.name, KEY, b"somebody", ttl=3600)
        await stand.clock.advance(20)
        # What cannot be seen is not absent.
        await bus.delete(LEASE.name, KEY)
        stand.link.bus.disconnect()
        await stand.clock.advance(20)
        assert stand.reigns == []


async def test_a_hub_that_cannot_be_reached_yet_is_tried_again() -> None:
    server = MemoryServer()
    stand = Stand(server, hub=NODE)
    stand.link.bus.disconnect()
    task = asyncio.create_task(stand.candidacy.run())
    await stand.sleeps()
    stand.link.bus.reconnect()
    await stand.clock.advance(1)
    await stand.rules(server)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
