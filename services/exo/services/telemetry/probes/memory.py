"""Main memory, swap, and what this node's processes hold of it. Reads /proc, takes 0.1 ms."""

from collections.abc import Iterable

import psutil

from exo.services.telemetry.macmon_sample import Memory
from exo.streams.telemetry import MemoryGauge, Pressure


def read_memory(
    process_ids: Iterable[int], *, budget: int = 0, pressure: Pressure = "unknown", macmon: Memory | None = None
) -> MemoryGauge:
    """Measure now; processes that are gone count nothing.

    With a `budget` in bytes, what is available is what these processes leave of it, whatever the
    machine says. `macmon` is what it has just seen; it counts a Mac's memory as macOS itself shows it.
    """
    seen = macmon or _read_psutil()
    held = sum(read_resident(process_id) for process_id in process_ids)
    return MemoryGauge(
        total=budget or seen.ram_total,
        available=max(budget - held, 0) if budget else seen.ram_total - seen.ram_usage,
        swap_total=seen.swap_total,
        swap_available=max(seen.swap_total - seen.swap_usage, 0),
        process_bytes=held,
        pressure=pressure,
    )


def _read_psutil() -> Memory:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return Memory(
        ram_total=memory.total,
        ram_usage=memory.total - memory.available,
        swap_total=swap.total,
        swap_usage=swap.total - swap.free,
    )


def read_resident(process_id: int) -> int:
    """Give the resident size of one process in bytes, 0 when it is gone."""
    try:
        return psutil.Process(process_id).memory_info().rss
    except psutil.Error:
        return 0
