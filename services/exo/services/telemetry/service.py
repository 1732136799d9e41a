"""Measures this machine every few seconds and publishes each gauge on its own core subject."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from exo.broker.bus import Bus
from exo.services.clock import Clock
from exo.services.telemetry.probes.disk import read_disk
from exo.services.telemetry.probes.memory import read_memory
from exo.services.telemetry.probes.processor import ProcessorProbe
from exo.services.telemetry.probes.throughput import ThroughputProbe
from exo.streams import subjects
from exo.streams.codec import encode
from exo.streams.ids import NodeId, RunnerId
from exo.streams.pipe import Beat
from exo.streams.telemetry import Gauge, Sample

INTERVAL = 2.0
DISK_INTERVAL = 30.0


async def publish_gauge(bus: Bus, *, node: NodeId, name: str, gauge: Gauge, interval: float, clock: Clock) -> None:
    """Publish one sample on `exo.telemetry.<node>.<name>`."""
    sample = Sample(taken_at=clock.now(), interval=interval, gauge=gauge)
    await bus.publish(subjects.telemetry(node, name), encode(sample))


class Telemetry:
    """All gauges of one node."""

    def __init__(
        self,
        bus: Bus,
        *,
        node: NodeId,
        models_directory: Path,
        process_ids: Callable[[], Iterable[int]],
        beats: Callable[[], Mapping[RunnerId, Beat]],
        clock: Clock,
        memory_budget: int = 0,
    ) -> None:
        self._bus = bus
        self._node = node
        self._models_directory = models_directory
        self._process_ids = process_ids
        self._beats = beats
        self._clock = clock
        self._memory_budget = memory_budget
        self._processor = ProcessorProbe()
        self._throughput = ThroughputProbe()

    async def run(self) -> None:
        """Measure until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._measure_often())
            group.create_task(self._measure_disk())

    async def _measure_often(self) -> None:
        before = self._clock.monotonic()
        while True:
            memory = read_memory([os.getpid(), *self._process_ids()], budget=self._memory_budget)
            await self._publish("memory", memory, interval=INTERVAL)
            await self._publish("processor", self._processor.read(), interval=INTERVAL)
            now = self._clock.monotonic()
            await self._publish(
                "throughput", self._throughput.read(self._beats(), seconds=now - before), interval=INTERVAL
            )
            before = now
            await self._clock.sleep(INTERVAL)

    async def _measure_disk(self) -> None:
        while True:
            gauge = await asyncio.to_thread(read_disk, self._models_directory)
            await self._publish("disk", gauge, interval=DISK_INTERVAL)
            await self._clock.sleep(DISK_INTERVAL)

    async def _publish(self, name: str, gauge: Gauge, *, interval: float) -> None:
        await publish_gauge(self._bus, node=self._node, name=name, gauge=gauge, interval=interval, clock=self._clock)
