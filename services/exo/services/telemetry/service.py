"""Measures this machine every few seconds and publishes each gauge on its own core subject.

Every collector runs apart from the others: one that hangs or fails lets its own gauges grow old.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from exo.broker.bus import Bus
from exo.services.clock import Clock
from exo.services.service import supervise
from exo.services.telemetry.apart import run_apart
from exo.services.telemetry.board import FindingBoard
from exo.services.telemetry.collector import Collector, Measured, collect
from exo.services.telemetry.macmon import Macmon
from exo.services.telemetry.macmon_sample import read_gpu, read_power
from exo.services.telemetry.probes.disk import name_disks, read_disk
from exo.services.telemetry.probes.memory import read_memory
from exo.services.telemetry.probes.nvidia import NvidiaProbe
from exo.services.telemetry.probes.power import PowerProbe
from exo.services.telemetry.probes.pressure import read_pressure
from exo.services.telemetry.probes.processor import ProcessorProbe
from exo.services.telemetry.probes.throughput import ThroughputProbe
from exo.streams import subjects
from exo.streams.codec import encode
from exo.streams.ids import NodeId, RunnerId
from exo.streams.pipe import Beat
from exo.streams.telemetry import FindingsGauge, Gauge, Pressure, Sample

INTERVAL = 2.0
DISK_INTERVAL = 30.0
FINDINGS_INTERVAL = 10.0


async def publish_gauge(bus: Bus, *, node: NodeId, name: str, gauge: Gauge, interval: float, clock: Clock) -> None:
    """Publish one sample on `exo.telemetry.<node>.<name>`."""
    sample = Sample(taken_at=clock.now(), interval=interval, gauge=gauge)
    await bus.publish(subjects.telemetry(node, name), encode(sample))


class Telemetry:
    """All gauges of one node. Others add what they find wrong to `board`."""

    def __init__(
        self,
        bus: Bus,
        *,
        node: NodeId,
        model_directories: Sequence[Path],
        process_ids: Callable[[], Iterable[int]],
        beats: Callable[[], Mapping[RunnerId, Beat]],
        clock: Clock,
        memory_budget: int = 0,
        macmon: str = "",
        board: FindingBoard | None = None,
    ) -> None:
        """`macmon` is its program; empty looks for it on a Mac and does without elsewhere."""
        self._bus = bus
        self._node = node
        self._model_directories = model_directories
        self._process_ids = process_ids
        self._beats = beats
        self._clock = clock
        self._memory_budget = memory_budget
        self.board = board or FindingBoard()
        wanted = macmon or sys.platform == "darwin"
        self._macmon = Macmon(clock=clock, board=self.board, binary=macmon) if wanted else None
        self._pressure: Pressure = "unknown"
        self._processor = ProcessorProbe()
        self._throughput = ThroughputProbe()
        self._throughput_read = clock.monotonic()

    async def run(self) -> None:
        """Measure until cancelled."""
        async with asyncio.TaskGroup() as group:
            for collector in self._collectors():
                work = partial(collect, collector, publish=self._publish, board=self.board, clock=self._clock)
                group.create_task(supervise(f"telemetry of {collector.name}", work, clock=self._clock))
            if self._macmon is not None:
                group.create_task(supervise("macmon", self._macmon.run, clock=self._clock))

    def _collectors(self) -> list[Collector]:
        return [
            Collector(name="memory", interval=INTERVAL, read=self._read_memory),
            Collector(name="processor", interval=INTERVAL, read=self._read_processor),
            Collector(name="throughput", interval=INTERVAL, read=self._read_throughput),
            *(
                Collector(name=name, interval=DISK_INTERVAL, read=_apart(name, partial(read_disk, directory)))
                for name, directory in name_disks(self._model_directories).items()
            ),
            *self._hardware(),
            Collector(name="findings", interval=FINDINGS_INTERVAL, read=self._read_findings),
        ]

    def _hardware(self) -> list[Collector]:
        pressure = Collector(name="pressure", interval=FINDINGS_INTERVAL, read=self._read_pressure)
        if self._macmon is not None:
            return [pressure, Collector(name="macmon", interval=INTERVAL, read=self._read_macmon)]
        return [
            pressure,
            Collector(name="gpu", interval=INTERVAL, read=_apart("gpu", NvidiaProbe().read)),
            Collector(name="power", interval=INTERVAL, read=_apart("power", PowerProbe().read)),
        ]

    async def _read_memory(self) -> Measured:
        processes = [os.getpid(), *self._process_ids()]
        sample = self._macmon.newest() if self._macmon is not None else None
        read = partial(
            read_memory,
            processes,
            budget=self._memory_budget,
            pressure=self._pressure,
            macmon=sample.memory if sample is not None else None,
        )
        return {"memory": await run_apart(read)}

    async def _read_processor(self) -> Measured:
        """Not apart: psutil measures from one reading to the next of the same thread."""
        return {"processor": self._processor.read()}

    async def _read_pressure(self) -> Measured:
        """No gauge of its own: the memory gauge carries it."""
        self._pressure = await run_apart(read_pressure)
        return {}

    async def _read_macmon(self) -> Measured:
        """Nothing while macmon says nothing: its gauges grow old."""
        sample = self._macmon.newest() if self._macmon is not None else None
        return {"gpu": read_gpu(sample), "power": read_power(sample)} if sample is not None else {}

    async def _read_throughput(self) -> Measured:
        before, self._throughput_read = self._throughput_read, self._clock.monotonic()
        return {"throughput": self._throughput.read(self._beats(), seconds=self._throughput_read - before)}

    async def _read_findings(self) -> Measured:
        return {"findings": FindingsGauge(findings=self.board.current())}

    async def _publish(self, name: str, gauge: Gauge, *, interval: float) -> None:
        await publish_gauge(self._bus, node=self._node, name=name, gauge=gauge, interval=interval, clock=self._clock)


def _apart(name: str, read: Callable[[], Gauge | None]) -> Callable[[], Awaitable[Measured | None]]:
    """Make a collector's `read` of a function that may hang; a gauge of None means that there is none."""

    async def measure() -> Measured | None:
        gauge = await run_apart(read)
        return None if gauge is None else {name: gauge}

    return measure
