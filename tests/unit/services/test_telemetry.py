"""What a machine measures, and who keeps the newest sample."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from exo.broker.memory import MemoryBus
from exo.services.clock import FakeClock
from exo.services.telemetry.gauges import Gauges
from exo.services.telemetry.probes.disk import read_disk
from exo.services.telemetry.probes.machine import read_facts
from exo.services.telemetry.probes.memory import read_memory, read_resident
from exo.services.telemetry.probes.processor import ProcessorProbe
from exo.services.telemetry.probes.throughput import ThroughputProbe
from exo.services.telemetry.service import INTERVAL, Telemetry, publish_gauge
from exo.streams import subjects
from exo.streams.ids import NodeId, RunnerId
from exo.streams.pipe import Beat
from exo.streams.telemetry import ImportGauge, MemoryGauge
from support.services import NODE, eventually, make_memory, make_settings

RUNNER = RunnerId("r")


def beat(generated: int, prompt: int = 0, active: int = 0, queued: int = 0) -> Beat:
    return Beat(steps=0, active=active, queued=queued, generated_tokens=generated, prompt_tokens=prompt)


def test_memory_is_measured() -> None:
    gauge = read_memory([os.getpid()])
    assert 0 < gauge.available <= gauge.total
    assert 1_000_000 < gauge.process_bytes < gauge.total


def test_a_memory_budget_shrinks_by_what_is_held() -> None:
    gauge = read_memory([os.getpid()], budget=10**12)
    assert gauge.total == 10**12
    assert gauge.available == 10**12 - gauge.process_bytes
    assert read_memory([os.getpid()], budget=1).available == 0


def test_a_process_that_is_gone_holds_nothing() -> None:
    assert read_resident(2**22 + 1) == 0


def test_the_processor_is_measured() -> None:
    gauge = ProcessorProbe().read()
    assert gauge.cores >= 1
    assert 0 <= gauge.utilization <= 1


def test_the_disk_of_a_directory_that_does_not_exist_yet_is_measured(tmp_path: Path) -> None:
    gauge = read_disk(tmp_path / "not" / "yet")
    assert 0 < gauge.available <= gauge.total


def test_the_machine_describes_itself(tmp_path: Path) -> None:
    facts = read_facts(make_settings(tmp_path, api_port=52415, worker=False))
    assert (facts.name, facts.api_port, facts.worker) == ("mac", 52415, False)
    assert facts.memory_total > 0
    assert facts.cores >= 1
    assert facts.chip


def test_throughput_is_the_difference_of_two_readings() -> None:
    probe = ThroughputProbe()
    probe.read({RUNNER: beat(100, 50)}, seconds=2)
    gauge = probe.read({RUNNER: beat(160, 70, active=2, queued=1)}, seconds=2)
    assert (gauge.generated_tokens_per_second, gauge.prompt_tokens_per_second, gauge.active_tasks) == (30, 10, 3)
    assert probe.read({}, seconds=2).generated_tokens_per_second == 0


def test_a_restarted_runner_counts_from_zero() -> None:
    probe = ThroughputProbe()
    probe.read({RUNNER: beat(1000)}, seconds=1)
    assert probe.read({RUNNER: beat(10)}, seconds=1).generated_tokens_per_second == 10


@asynccontextmanager
async def listening() -> AsyncGenerator[tuple[MemoryBus, Gauges, FakeClock]]:
    bus, clock = MemoryBus(), FakeClock()
    gauges = Gauges(bus, clock=clock)
    task = asyncio.create_task(gauges.run())
    await asyncio.sleep(0.01)
    try:
        yield bus, gauges, clock
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert bus.server.subscriptions == 0


async def send(bus: MemoryBus, node: NodeId, gauge: MemoryGauge | ImportGauge, name: str = "memory") -> None:
    await publish_gauge(bus, node=node, name=name, gauge=gauge, interval=2, clock=FakeClock())


async def test_the_newest_sample_is_kept_with_its_age() -> None:
    async with listening() as (bus, gauges, clock):
        await send(bus, NODE, make_memory(1))
        await send(bus, NODE, make_memory(2))
        await clock.advance(3)
        (reading,) = gauges.samples()
        assert reading.sample.gauge == make_memory(2)
        assert gauges.age(reading) == 3
        assert gauges.get(NODE, "memory") == reading
        assert gauges.memory_available(NODE) == make_memory(2).available
        assert gauges.memory_available(NodeId("other")) is None


async def test_an_old_sample_is_no_basis_for_placement() -> None:
    async with listening() as (bus, gauges, clock):
        await send(bus, NODE, make_memory(1))
        await clock.advance(6)
        (reading,) = gauges.samples()
        assert gauges.memory()
        assert not gauges.is_stale(reading)
        await clock.advance(1)
        assert gauges.memory() == {}
        assert gauges.is_stale(reading)
        assert gauges.samples()


async def test_waiting_for_memory_ends_when_all_have_reported_or_time_is_up() -> None:
    async with listening() as (bus, gauges, _):
        assert not await gauges.wait_for_memory([NODE], timeout=0.01)
        waiting = asyncio.create_task(gauges.wait_for_memory([NODE, NodeId("b")], timeout=5))
        await send(bus, NODE, make_memory(1))
        await send(bus, NodeId("b"), make_memory(1))
        assert await waiting


@pytest.mark.parametrize("subject", [subjects.telemetry(NODE, "memory"), "exo.telemetry.too.many.parts"])
async def test_what_is_no_sample_is_ignored(subject: str) -> None:
    async with listening() as (bus, gauges, _):
        await bus.publish(subject, b"nonsense")
        await send(bus, NODE, make_memory(1))
        await asyncio.sleep(0)
        assert len(gauges.samples()) == 1


async def test_all_gauges_of_a_node_are_published_again_and_again(tmp_path: Path) -> None:
    async with listening() as (bus, gauges, _):
        clock = FakeClock()
        telemetry = Telemetry(
            bus,
            node=NODE,
            model_directories=(tmp_path,),
            process_ids=list,
            beats=lambda: {RUNNER: beat(0, active=4)},
            clock=clock,
        )
        task = asyncio.create_task(telemetry.run())

        async def have_all() -> bool:
            measured = {reading.name for reading in gauges.samples()}
            return measured >= {"memory", "processor", "throughput", "disk", "findings"}

        await eventually(have_all, what="a sample of each gauge")
        first = gauges.get(NODE, "memory")
        assert first is not None
        await clock.advance(INTERVAL)

        async def have_next() -> bool:
            newest = gauges.get(NODE, "memory")
            return newest is not None and newest.sample.taken_at - first.sample.taken_at == INTERVAL * 1000

        await eventually(have_next, what="the next sample")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
