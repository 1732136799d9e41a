"""One thing that measures again and again, apart from all others: when it hangs or fails, only its gauges grow old."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import structlog

from exo.services.clock import Clock
from exo.services.telemetry.board import FindingBoard
from exo.streams.findings import NodeFinding
from exo.streams.telemetry import Gauge

log = structlog.get_logger(__name__)

PATIENCE = 10.0
"""Seconds after which a measurement that does not end is told."""

Measured = Mapping[str, Gauge]
"""Gauges by the name they are published under."""
Publish = Callable[..., Awaitable[None]]


class Collector(msgspec.Struct, frozen=True, kw_only=True):
    """`read` gives gauges, or None when this machine has nothing of that kind, which is the end of it."""

    name: str
    interval: float
    read: Callable[[], Awaitable[Measured | None]]
    patience: float = PATIENCE


async def collect(collector: Collector, *, publish: Publish, board: FindingBoard, clock: Clock) -> None:
    """Measure and publish until there is nothing to measure, or for ever.

    `publish(name, gauge, interval=...)` sends one gauge. What `read` raises passes through.
    """
    while (measured := await _read(collector, board)) is not None:
        for name, gauge in measured.items():
            await publish(name, gauge, interval=collector.interval)
        await clock.sleep(collector.interval)


async def _read(collector: Collector, board: FindingBoard) -> Measured | None:
    reading = asyncio.ensure_future(collector.read())
    try:
        done, _ = await asyncio.wait({reading}, timeout=collector.patience)
        if not done:
            await _wait_for_stuck(collector, reading, board)
        return await reading
    finally:
        reading.cancel()


async def _wait_for_stuck(
    collector: Collector, reading: "asyncio.Future[Measured | None]", board: FindingBoard
) -> None:
    """Wait for the one that hangs instead of sending more after it."""
    log.warning("a measurement does not end, its gauges grow old", collector=collector.name)
    message = f"measuring {collector.name} does not end: its numbers are old"
    finding = NodeFinding(
        code="collector_stuck", message=message, remedy="look for a dead disk, network share or driver"
    )
    board.note(collector.name, finding)
    await asyncio.wait({reading})
    board.note(collector.name)
    log.info("a measurement has ended after all", collector=collector.name)
