"""A collector that hangs or fails lets only its own gauges grow old."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from exo.services.clock import FakeClock
from exo.services.service import supervise
from exo.services.telemetry.apart import run_apart
from exo.services.telemetry.board import FindingBoard
from exo.services.telemetry.collector import Collector, Measured, collect
from exo.streams.findings import NodeFinding
from exo.streams.telemetry import DiskGauge, Gauge
from support.services import eventually

GAUGE = DiskGauge(total=2, available=1)


class Desk:
    """Collectors at work, and what they publish."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.board = FindingBoard()
        self.published: list[str] = []

    async def publish(self, name: str, gauge: Gauge, *, interval: float) -> None:
        self.published.append(name)

    @asynccontextmanager
    async def running(self, *collectors: Collector) -> AsyncGenerator[None]:
        work = [partial(collect, one, publish=self.publish, board=self.board, clock=self.clock) for one in collectors]
        tasks = [asyncio.create_task(supervise("test", one, clock=self.clock)) for one in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def have(self, name: str, times: int = 1) -> None:
        async def enough() -> bool:
            return self.published.count(name) >= times

        await eventually(enough, what=f"{times} of {name}")


async def read_well() -> Measured:
    return {"good": GAUGE}


async def test_a_collector_that_hangs_stops_no_other_and_is_told() -> None:
    desk, release = Desk(), threading.Event()

    async def hang() -> Measured:
        await run_apart(release.wait)
        return {"slow": GAUGE}

    stuck = Collector(name="slow", interval=2, read=hang, patience=0.02)
    async with desk.running(stuck, Collector(name="good", interval=2, read=read_well)):

        async def told() -> bool:
            return bool(desk.board.current())

        await eventually(told, what="the finding")
        (finding,) = desk.board.current()
        assert (finding.code, "slow" in finding.message) == ("collector_stuck", True)
        for _ in range(3):
            await desk.clock.advance(2)
        await desk.have("good", 4)
        assert "slow" not in desk.published
        release.set()
        await desk.have("slow")
        assert desk.board.current() == ()


async def test_a_collector_that_fails_starts_again_and_stops_no_other() -> None:
    desk = Desk()
    failures = iter([OSError("gone"), None])

    async def fail_once() -> Measured:
        error = next(failures, None)
        if error is not None:
            raise error
        return {"weak": GAUGE}

    weak = Collector(name="weak", interval=2, read=fail_once)
    async with desk.running(weak, Collector(name="good", interval=2, read=read_well)):
        await desk.have("good")
        assert "weak" not in desk.published
        await desk.clock.advance(1)
        await desk.have("weak")


async def test_a_collector_with_nothing_to_measure_ends() -> None:
    desk = Desk()

    async def find_nothing() -> None:
        return None

    await collect(
        Collector(name="gpu", interval=2, read=find_nothing), publish=desk.publish, board=desk.board, clock=desk.clock
    )
    assert desk.published == []


async def test_a_collector_may_measure_without_a_gauge_of_its_own() -> None:
    desk = Desk()
    readings = iter([{}, None])

    async def read() -> Measured | None:
        return next(readings)

    collecting = asyncio.create_task(
        collect(Collector(name="p", interval=2, read=read), publish=desk.publish, board=desk.board, clock=desk.clock)
    )
    await desk.clock.advance(2)
    await collecting


async def test_work_apart_gives_and_raises_what_it_gives_and_raises() -> None:
    def fail() -> None:
        raise KeyError("lost")

    assert await run_apart(lambda: 3) == 3
    with pytest.raises(KeyError, match="lost"):
        await run_apart(fail)


async def test_nobody_waits_for_work_that_was_given_up() -> None:
    release = threading.Event()
    waiting = asyncio.create_task(run_apart(release.wait))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    release.set()
    assert await run_apart(lambda: 4) == 4


def test_a_node_does_not_wait_at_its_end_for_what_hangs() -> None:
    release = threading.Event()

    async def give_up() -> None:
        async with asyncio.timeout(0.01):
            await run_apart(lambda: release.wait(30))

    started = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    release.set()
    assert time.monotonic() - started < 15


def test_each_source_keeps_its_own_findings() -> None:
    board = FindingBoard()
    first, second = NodeFinding(code="a", message="m"), NodeFinding(code="b", message="m")
    board.note("one", first)
    board.note("two", second)
    assert board.current() == (first, second)
    board.note("one")
    assert board.current() == (second,)
