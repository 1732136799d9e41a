"""Leases over a `MemoryBus`."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from exo.broker.leases import Lease
from exo.broker.memory import MemoryBus


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
async def lost() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
async def lease(bus: MemoryBus, lost: asyncio.Event) -> AsyncIterator[Lease]:
    lease = Lease(bus, "exo_lease", "master", value=b"n1", ttl=1, renewal=0.05, on_lost=lost.set)
    yield lease
    await lease.release()


def rival(bus: MemoryBus) -> Lease:
    return Lease(MemoryBus(bus.server), "exo_lease", "master", value=b"n2", ttl=1, renewal=0.05)


async def test_one_holds_it_until_it_is_released(bus: MemoryBus, lease: Lease, lost: asyncio.Event) -> None:
    other = rival(bus)
    assert not lease.held
    assert await lease.acquire()
    assert lease.held
    assert not await other.acquire()
    await lease.release()
    await lease.release()
    assert not lease.held
    assert await other.acquire()
    await other.release()
    assert not lost.is_set()


async def test_it_is_renewed(bus: MemoryBus, lease: Lease) -> None:
    await lease.acquire()
    before = await lease.holder()
    assert before is not None
    async with asyncio.timeout(5):
        while (await bus.keys("exo_lease"))["master"].revision < before.revision + 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert lease.held


async def test_one_that_lapses_ends_by_itself(bus: MemoryBus, lease: Lease, lost: asyncio.Event) -> None:
    await lease.acquire()
    await lease.lapse()
    assert not lease.held
    assert await lease.holder() is not None
    bus.server.advance(1.1)
    assert await lease.holder() is None
    other = rival(bus)
    assert await other.acquire()
    await lease.release()
    assert other.held
    entry = await other.holder()
    assert entry is not None
    assert entry.value == b"n2"
    await other.release()
    assert not lost.is_set()


async def test_one_that_lapses_can_be_taken_up_again_or_given_back(lease: Lease) -> None:
    await lease.acquire()
    await lease.lapse()
    assert await lease.acquire()
    assert lease.held
    await lease.lapse()
    await lease.release()
    assert await lease.holder() is None


async def test_a_new_life_takes_over_what_the_old_one_held(bus: MemoryBus, lease: Lease) -> None:
    await bus.put("exo_lease", "master", b"n1", ttl=1)
    assert await lease.acquire()


async def test_it_is_lost_when_somebody_else_has_it(bus: MemoryBus, lease: Lease, lost: asyncio.Event) -> None:
    await lease.acquire()
    await bus.put("exo_lease", "master", b"n2", ttl=1)
    async with asyncio.timeout(5):
        await lost.wait()
    assert not lease.held
    entry = await lease.holder()
    assert entry is not None
    assert entry.value == b"n2"


async def test_it_is_lost_at_the_deadline_when_the_broker_is_away(
    bus: MemoryBus, lease: Lease, lost: asyncio.Event
) -> None:
    started = asyncio.get_running_loop().time()
    await lease.acquire()
    bus.disconnect()
    async with asyncio.timeout(5):
        await lost.wait()
    assert not lease.held
    assert asyncio.get_running_loop().time() - started < 3


async def test_it_survives_a_short_loss_of_the_broker_and_of_its_memory(
    bus: MemoryBus, lease: Lease, lost: asyncio.Event
) -> None:
    await lease.acquire()
    bus.disconnect()
    bus.server.lose_memory()
    bus.reconnect()
    async with asyncio.timeout(5):
        while await bus.get("exo_lease", "master") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert lease.held
    assert not lost.is_set()
