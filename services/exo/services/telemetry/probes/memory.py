"""Main memory, swap, and what this node's processes hold of it. Reads /proc, takes 0.1 ms."""

from collections.abc import Iterable

import psutil

from exo.streams.telemetry import MemoryGauge


def read_memory(process_ids: Iterable[int], *, budget: int = 0) -> MemoryGauge:
    """Measure now; processes that are gone count nothing.

    With a `budget` in bytes, what is available is what these processes leave of it, whatever the
    machine says.
    """
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    held = sum(read_resident(process_id) for process_id in process_ids)
    return MemoryGauge(
        total=budget or memory.total,
        available=max(budget - held, 0) if budget else memory.available,
        swap_total=swap.total,
        swap_available=swap.free,
        process_bytes=held,
    )


def read_resident(process_id: int) -> int:
    """Give the resident size of one process in bytes, 0 when it is gone."""
    try:
        return psutil.Process(process_id).memory_info().rss
    except psutil.Error:
        return 0
