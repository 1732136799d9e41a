"""Gauges: samples of a machine, published on core subjects and never written to the event log."""

from typing import Literal

import msgspec


class MemoryGauge(msgspec.Struct, frozen=True, kw_only=True, tag="memory"):
    """Main memory and swap in bytes. `process_bytes` is the resident size of this node's processes."""

    total: int
    available: int
    swap_total: int = 0
    swap_available: int = 0
    process_bytes: int = 0


class ProcessorGauge(msgspec.Struct, frozen=True, kw_only=True, tag="processor"):
    """CPU use from 0 to 1 of the whole machine, and its logical cores."""

    utilization: float
    cores: int


class DiskGauge(msgspec.Struct, frozen=True, kw_only=True, tag="disk"):
    """Room in bytes on the file system that holds the models directory."""

    total: int
    available: int


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


Gauge = MemoryGauge | ProcessorGauge | DiskGauge | ThroughputGauge | ImportGauge


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One gauge with the moment it was read (Unix time in ms) and how often it is read (seconds)."""

    taken_at: int
    interval: float
    gauge: Gauge
