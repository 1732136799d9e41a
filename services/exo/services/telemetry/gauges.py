"""The newest sample of every gauge of every node, with its age.

The master and the gateway read it; `run` keeps it current. Never written to the log.
"""

import asyncio
from collections.abc import Iterable

import msgspec
import structlog

from exo.broker.bus import Bus, Delivery
from exo.services.clock import Clock
from exo.streams import subjects
from exo.streams.codec import CodecError, decode_sample
from exo.streams.ids import NodeId
from exo.streams.subjects import node_and_gauge
from exo.streams.telemetry import MemoryGauge, Sample, is_stale

log = structlog.get_logger(__name__)

_MOST_COMPLAINTS = 256


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A sample as this node received it; `received` is in seconds of the monotonic clock."""

    node: NodeId
    name: str
    sample: Sample
    received: float


class Gauges:
    """Follows `exo.telemetry.>`."""

    def __init__(self, bus: Bus, *, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._readings: dict[tuple[NodeId, str], Reading] = {}
        self._arrived = asyncio.Event()
        self._unreadable: set[str] = set()

    def samples(self) -> list[Reading]:
        """Give the newest reading of every gauge."""
        return list(self._readings.values())

    def get(self, node: NodeId, name: str) -> Reading | None:
        """Give the newest reading of one gauge."""
        return self._readings.get((node, name))

    def age(self, reading: Reading) -> float:
        """Seconds since a reading arrived here."""
        return self._clock.monotonic() - reading.received

    def is_stale(self, reading: Reading) -> bool:
        """Whether a reading is so old that its collector, or its node, must have stopped."""
        return is_stale(self.age(reading), interval=reading.sample.interval)

    def memory(self) -> dict[NodeId, MemoryGauge]:
        """Give the memory of every node that has reported it lately; what is stale is no basis for a placement."""
        return {
            reading.node: reading.sample.gauge
            for reading in self._readings.values()
            if isinstance(reading.sample.gauge, MemoryGauge) and not self.is_stale(reading)
        }

    def memory_available(self, node: NodeId) -> int | None:
        """Give a node's available memory in bytes; None when it is not known."""
        gauge = self.memory().get(node)
        return gauge.available if gauge else None

    def heard(self, *, within: float) -> set[NodeId]:
        """Give the nodes from which anything has come in the last `within` seconds."""
        return {reading.node for reading in self._readings.values() if self.age(reading) <= within}

    async def wait_for_memory(self, nodes: Iterable[NodeId], *, timeout: float) -> bool:
        """Wait until all these nodes have reported their memory; False after `timeout` seconds."""
        wanted = set(nodes)
        try:
            async with asyncio.timeout(timeout):
                while not wanted <= self.memory().keys():
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Listen until cancelled."""
        subscription = await self._bus.subscribe(subjects.TELEMETRY, self._take)
        try:
            await asyncio.Event().wait()
        finally:
            await subscription.stop()

    def _take(self, delivery: Delivery) -> None:
        try:
            node, name = node_and_gauge(delivery.subject)
            sample = decode_sample(delivery.payload)
        except (CodecError, ValueError):
            self._complain(delivery.subject)
            return
        reading = Reading(node=node, name=name, sample=sample, received=self._clock.monotonic())
        self._readings[node, name] = reading
        self._arrived.set()

    def _complain(self, subject: str) -> None:
        """Once for each subject: a newer node sends what this version does not know every few seconds."""
        if subject not in self._unreadable and len(self._unreadable) < _MOST_COMPLAINTS:
            self._unreadable.add(subject)
            log.warning("telemetry samples cannot be read", subject=subject)
