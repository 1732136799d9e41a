"""Who rules, for how long, and what ends a reign."""

import asyncio
from typing import Self

import pytest

from exo.broker.bus import StreamInfo
from exo.broker.errors import NotFoundError
from exo.broker.memory import MemoryBus
from exo.broker.memory_server import MemoryServer
from exo.services.clock import FakeClock, SystemClock
from exo.services.log_check import read_epoch
from exo.services.master.election import KEY, Election, LeaseRecord
from exo.services.master.presence import PresenceWatch
from exo.services.master.reign import DeposedError, Reign
from exo.services.projection import Projection
from exo.services.snapshots.service import Snapshots
from exo.services.snapshots.store import load_snapshot
from exo.streams import events as e
from exo.streams.codec import encode, hash_state
from exo.streams.ids import BootId, CommandId, NodeId, SessionId, TaskId
from exo.streams.layout import EVENTS, LEASE, NODES
from exo.streams.state import State
from support.services import BOOT, NODE, eventually, joined_state

OTHER = NodeId("node-b")
CANCELLED = e.TaskCancelled(task=TaskId("t"), reason="x")
RENEWAL = 0.05
LONG = 60
"""Seconds; a lease that ends in the time of a test did not end by itself."""


class Candidate:
    """An election whose rule only counts. Its lease lasts `ttl` seconds of the loop's clock."""

    def __init__(self, server: MemoryServer, node: NodeId, *, ttl: int = LONG) -> None:
        self.bus = MemoryBus(server)
        self.reigns = 0
        self.ruling = False
        self.ended_at = 0.0
        self.error: Exception | None = None
        self.election = Election(self.bus, node=node, boot=BOOT, rule=self._rule, ttl=ttl, renewal=RENEWAL)
        self.task = asyncio.create_task(self.election.run())

    async def _rule(self) -> None:
        self.reigns += 1
        self.ruling = True
        try:
            if self.error is not None:
                raise self.error
            await asyncio.Event().wait()
        finally:
            self.ruling = False
            self.ended_at = asyncio.get_running_loop().time()

    async def rules(self, *, reigns: int = 1) -> None:
        async def look() -> bool:
            return self.ruling and self.reigns == reigns

        await eventually(look, what=f"reign {reigns}")

    async def rules_no_more(self) -> None:
        async def look() -> bool:
            return not self.ruling

        await eventually(look, what="the end of the reign")

    async def renews(self, times: int = 3) -> None:
        """Wait until the key was written so many times."""
        first = await self.bus.get(LEASE.name, KEY)

        async def look() -> bool:
            entry = await self.bus.get(LEASE.name, KEY)
            return entry is not None and entry.revision >= (first.revision if first else 0) + times

        await eventually(look, what=f"{times} renewals")

    async def holder(self) -> bytes | None:
        entry = await self.bus.get(LEASE.name, KEY)
        return entry.value if entry else None

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.election.resign()


async def test_the_first_candidate_rules_and_the_second_waits() -> None:
    server = MemoryServer()
    first = Candidate(server, NODE)
    await first.rules()
    second = Candidate(server, OTHER)
    await first.renews()
    assert (first.ruling, first.reigns, second.reigns) == (True, 1, 0)
    await first.stop()
    # Far sooner than the lease would have ended by itself.
    await second.rules()
    assert not first.ruling
    await second.stop()
    assert await second.holder() is None


async def test_a_lease_that_is_not_renewed_passes_on() -> None:
    server = MemoryServer()
    first = Candidate(server, NODE)
    await first.rules()
    second = Candidate(server, OTHER)
    first.bus.disconnect()
    server.advance(LONG + 1)
    await second.rules()
    first.bus.reconnect()
    await first.rules_no_more()
    taken = await second.holder()
    await first.stop()
    assert await second.holder() == taken == encode(LeaseRecord(OTHER, BOOT))
    assert (second.ruling, second.reigns) == (True, 1)
    await second.stop()


async def test_a_candidate_that_is_cancelled_renews_no_more() -> None:
    server = MemoryServer()
    first = Candidate(server, NODE)
    await first.rules()
    first.task.cancel()
    await asyncio.gather(first.task, return_exceptions=True)
    assert not first.ruling
    assert await first.holder() is not None
    server.advance(LONG + 1)
    second = Candidate(server, OTHER)
    await second.rules()
    await second.stop()


async def test_a_broker_that_forgot_the_lease_does_not_end_the_reign() -> None:
    first = Candidate(MemoryServer(), NODE)
    await first.rules()
    first.bus.server.lose_memory()
    await first.renews()
    assert (first.ruling, first.reigns) == (True, 1)
    assert await first.holder() == encode(LeaseRecord(NODE, BOOT))
    await first.stop()


async def test_a_master_without_a_broker_stops_ruling_when_its_lease_must_have_ended() -> None:
    first = Candidate(MemoryServer(), NODE, ttl=1)
    await first.rules()
    await first.renews()
    cut = asyncio.get_running_loop().time()
    first.bus.disconnect()
    await first.rules_no_more()
    assert 1 - 2 * RENEWAL < first.ended_at - cut < 1.5
    await first.stop()


async def test_a_deposed_master_stands_again() -> None:
    first = Candidate(MemoryServer(), NODE)
    first.error = DeposedError("somebody else")

    async def is_deposed() -> bool:
        return first.reigns == 1 and not first.ruling

    await eventually(is_deposed, what="a deposed master")
    first.error = None
    await first.rules(reigns=2)
    await first.stop()


async def test_an_error_of_the_rule_is_not_hidden_and_frees_the_lease() -> None:
    first = Candidate(MemoryServer(), NODE)
    first.error = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        await first.task
    assert await first.holder() is None


class Throne:
    """A log with one projection, on which reigns begin."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.projection = Projection(self.bus, node=NODE, boot=BOOT)

    async def __aenter__(self) -> Self:
        await self.projection.inaugurate(self.bus, SessionId("session-1"))
        self.task = asyncio.create_task(self.projection.run())
        await self.projection.caught_up(timeout=5)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()

    async def begin(self, node: NodeId = NODE) -> Reign:
        reign = Reign(self.bus, self.projection, clock=SystemClock(), node=node, boot=BootId(f"boot-{node}"))
        await reign.begin()
        return reign


async def test_each_reign_has_an_epoch_of_its_own_in_one_session() -> None:
    async with Throne() as throne:
        first = await throne.begin()
        second = await throne.begin(OTHER)
        assert (first.epoch, second.epoch) == (2, 3)
        assert first.session == second.session == "session-1"
        assert throne.projection.state.master == OTHER


async def test_a_deposed_master_cannot_write() -> None:
    async with Throne() as throne:
        first = await throne.begin()
        await throne.begin(OTHER)
        before = (await throne.bus.stream_info(EVENTS.name)).last_sequence
        with pytest.raises(DeposedError):
            async with first.turn():
                await first.write(CANCELLED)
        assert (await throne.bus.stream_info(EVENTS.name)).last_sequence == before
        with pytest.raises(DeposedError):
            await first.renew()


async def test_two_masters_at_once_become_one() -> None:
    async with Throne() as throne:
        results = await asyncio.gather(throne.begin(), throne.begin(OTHER), return_exceptions=True)
        lost = [result for result in results if isinstance(result, DeposedError)]
        ruling = [result for result in results if isinstance(result, Reign)]
        assert ruling
        # Whoever was first by a hair is deposed by the second, or the second could not begin.
        newest = max(ruling, key=lambda reign: reign.epoch)
        async with newest.turn():
            await newest.write(CANCELLED)
        for reign in ruling:
            if reign is not newest:
                with pytest.raises(DeposedError):
                    async with reign.turn():
                        await reign.write(CANCELLED)
        assert len(lost) + len(ruling) == 2


async def test_a_decision_is_folded_before_the_next_turn() -> None:
    async with Throne() as throne:
        reign = await throne.begin()

        async def decide(number: int) -> int:
            async with reign.turn() as state:
                seen = len(state.ended_tasks)
                await reign.write(
                    e.TaskCancelled(task=TaskId(f"t-{number}"), reason=""), cause=CommandId(f"c-{number}")
                )
                return seen

        assert await asyncio.gather(*(decide(number) for number in range(20))) == list(range(20))
        receipt = throne.projection.state.receipts.get(CommandId("c-7"))
        assert receipt is not None
        assert receipt.outcome == "accepted"


async def test_the_log_is_cut_behind_a_snapshot_and_the_fence_stands() -> None:
    async with Throne() as throne:
        reign = await throne.begin()
        snapshots = Snapshots(throne.bus, projection=throne.projection, every=50, kept=10)
        watching = asyncio.create_task(snapshots.run(reign))
        for number in range(100):
            async with reign.turn():
                await reign.write(e.TaskCancelled(task=TaskId(f"t-{number}"), reason=""))

        async def find_cut() -> StreamInfo | None:
            info = await throne.bus.stream_info(EVENTS.name)
            return info if info.first_sequence > 1 else None

        info = await eventually(find_cut, what="a shorter log")
        watching.cancel()
        snapshot = await load_snapshot(throne.bus)
        assert snapshot is not None
        assert info is not None
        assert info.first_sequence - 1 <= snapshot.applied
        assert reign.epoch_sequence >= info.first_sequence
        assert reign.epoch == 2
        async with reign.turn():
            await reign.write(CANCELLED)
        fresh = Projection(throne.bus)
        task = asyncio.create_task(fresh.run())
        await fresh.caught_up(timeout=5)
        await throne.projection.wait(lambda state: state.applied >= fresh.state.applied, timeout=5)
        assert fresh.state == throne.projection.state
        task.cancel()


async def test_the_epoch_record_tells_what_it_begins_on() -> None:
    async with Throne() as throne:
        await throne.begin()
        first, second = await throne.bus.read(EVENTS.name, "exo.events.epoch")
        inaugural, begun = read_epoch(first), read_epoch(second)
        assert inaugural is not None
        assert begun is not None
        assert (inaugural.base, inaugural.state_hash, inaugural.master) == (0, hash_state(State()), NODE)
        assert (begun.base, len(begun.state_hash), begun.session) == (1, 64, inaugural.session)


async def test_nobody_rules_over_a_log_without_a_session() -> None:
    bus = MemoryBus()
    reign = Reign(bus, Projection(bus), clock=SystemClock(), node=NODE, boot=BOOT)
    with pytest.raises(NotFoundError):
        await reign.begin()


async def test_absence_is_counted_from_when_it_is_first_seen() -> None:
    bus, clock = MemoryBus(), FakeClock()
    watch, state = PresenceWatch(bus, clock=clock), joined_state()
    assert await watch.look(state) == {NODE: 0}
    await clock.advance(7)
    assert await watch.look(state) == {NODE: 7}
    await bus.put(NODES.name, NODE, b"here", ttl=10)
    assert await watch.look(state) == {}
    await bus.delete(NODES.name, NODE)
    await clock.advance(1)
    assert await watch.look(state) == {NODE: 0}
    await clock.advance(1)
    watch.forget()
    assert await watch.look(state) == {NODE: 0}
