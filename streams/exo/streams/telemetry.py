"""Gauges: samples of a machine, published on core subjects and never written to the event log."""

from typing import Literal

import msgspec

from exo.streams.findings import NodeFinding
from exo.streams.links import Link

STALE_INTERVALS = 3
"""A sample older than this many of its own intervals is stale: its collector has stopped, or its node."""
LEAST_STALE_AGE = 5.0
"""Seconds that a sample is fresh in any case, so that one late message greys nothing out."""

Pressure = Literal["unknown", "normal", "warning", "critical"]


class MemoryGauge(msgspec.Struct, frozen=True, kw_only=True, tag="memory"):
    """Main memory and swap in bytes. `process_bytes` is the resident size of this node's processes."""

    total: int
    available: int
    swap_total: int = 0
    swap_available: int = 0
    process_bytes: int = 0
    pressure: Pressure = "unknown"
    """How short of memory the operating system itself says it is."""


class ProcessorGauge(msgspec.Struct, frozen=True, kw_only=True, tag="processor"):
    """CPU use from 0 to 1 of the whole machine, its logical cores, and the load average of one minute."""

    utilization: float
    cores: int
    load: float = 0


class DiskGauge(msgspec.Struct, frozen=True, kw_only=True, tag="disk"):
    """Room in bytes on the file system that holds one directory of models."""

    total: int
    available: int
    directory: str = ""


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. Memory in bytes, power in watts, temperature in degrees Celsius; None is not readable."""

    name: str
    utilization: float | None = None
    """From 0 to 1."""
    memory_total: int | None = None
    memory_used: int | None = None
    power: float | None = None
    temperature: float | None = None


class GpuGauge(msgspec.Struct, frozen=True, kw_only=True, tag="gpu"):
    """All GPUs of a machine, in the driver's order."""

    devices: tuple[Accelerator, ...]


class PowerGauge(msgspec.Struct, frozen=True, kw_only=True, tag="power"):
    """What a machine draws in watts, and how hot it is in degrees Celsius; null is not readable."""

    system: float | None = None
    """The whole machine."""
    package: float | None = None
    """The processor package, or the chip with its GPU."""
    temperature: float | None = None
    """Of the processor."""


class LinksGauge(msgspec.Struct, frozen=True, kw_only=True, tag="links"):
    """The newest measurement of every link of a node; State holds them too, written only when they change."""

    links: tuple[Link, ...]


class FindingsGauge(msgspec.Struct, frozen=True, kw_only=True, tag="findings"):
    """What is wrong with a machine's hardware, or with what measures it."""

    findings: tuple[NodeFinding, ...]


class ThroughputGauge(msgspec.Struct, frozen=True, kw_only=True, tag="throughput"):
    """What the runners of a node did in the last interval."""

    generated_tokens_per_second: float
    prompt_tokens_per_second: float
    active_tasks: int


class ImportGauge(msgspec.Struct, frozen=True, kw_only=True, tag="import"):
    """How far the import of a model is. `unit` says what `done` and `total` count; `total` 0 is unknown."""

    model: str
    stage: Literal["fetching", "converting", "verifying", "complete", "failed"]
    done: int = 0
    total: int = 0
    unit: str = "bytes"


Gauge = (
    MemoryGauge
    | ProcessorGauge
    | DiskGauge
    | ThroughputGauge
    | ImportGauge
    | GpuGauge
    | PowerGauge
    | LinksGauge
    | FindingsGauge
)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One gauge with the moment it was read (Unix time in ms) and how often it is read (seconds)."""

    taken_at: int
    interval: float
    gauge: Gauge


def is_stale(age: float, *, interval: float) -> bool:
    """Whether a sample of that age, read every `interval`, tells about the past only. Both in seconds."""
    return age > max(STALE_INTERVALS * interval, LEAST_STALE_AGE)
