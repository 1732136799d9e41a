import asyncio
import itertools

import pytest

from exo.services.clock import FakeClock, SystemClock
from exo.services.service import FIRST_PAUSE, LONGEST_PAUSE, supervise


async def test_sleepers_wake_in_the_order_of_their_time() -> None:
    clock, woken = FakeClock(), list[str]()

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(f"{name}@{clock.monotonic():g}")

    async with asyncio.TaskGroup() as group:
        group.create_task(sleep("late", 3))
        group.create_task(sleep("early", 1))
        await clock.advance(2)
        assert woken == ["early@1"]
        assert clock.sleeping == 1
        await clock.advance(1)
    assert woken == ["early@1", "late@3"]


async def test_both_kinds_of_time_move_together() -> None:
    clock = FakeClock(now=1000)
    await clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (3500, 2.5)


async def test_the_system_clock_counts_milliseconds_since_1970() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0)
    assert clock.now() > 1_700_000_000_000
    assert clock.monotonic() >= before


async def test_a_service_that_fails_starts_again_after_growing_pauses() -> None:
    clock, starts = FakeClock(), list[float]()

    async def run() -> None:
        starts.append(clock.monotonic())
        raise ValueError("broken")

    task = asyncio.create_task(supervise("test", run, clock=clock))
    await clock.advance(60)
    task.cancel()
    pauses = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert pauses[:3] == pytest.approx([FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE])
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE)


async def test_a_service_that_ran_long_is_forgiven() -> None:
    clock, starts = FakeClock(), list[float]()

    async def run() -> None:
        starts.append(clock.monotonic())
        await clock.sleep(40)
        raise ValueError("broken")

    task = asyncio.create_task(supervise("test", run, clock=clock))
    await clock.advance(130)
    task.cancel()
    assert starts == pytest.approx([0, 40.2, 80.4, 120.6])


async def test_a_service_that_returns_is_not_started_again() -> None:
    runs = list[int]()

    async def run() -> None:
        runs.append(1)

    await supervise("test", run, clock=FakeClock())
    assert runs == [1]


async def test_a_service_outlives_a_cancellation_that_leaked_out_of_a_library() -> None:
    clock, starts = FakeClock(), list[float]()

    async def run() -> None:
        starts.append(clock.monotonic())
        raise asyncio.CancelledError

    task = asyncio.create_task(supervise("test", run, clock=clock))
    await clock.advance(1)
    assert len(starts) > 1
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
