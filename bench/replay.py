"""A cold projection of 100,000 events over a real broker, without and with a snapshot."""

import asyncio
import time
from pathlib import Path

from bench.target import Result
from exo.broker.bus import Bus
from exo.broker.credentials import Credentials
from exo.broker.hub import Hub, HubSettings
from exo.services.projection import Projection
from exo.services.snapshots.store import save_snapshot
from exo.streams import codec, envelope
from exo.streams.events import CommandRejected, Envelope, subject_of_event
from exo.streams.ids import BootId, CommandId, NodeId

EVENTS = 100_000
WINDOW = 500


def rejection(number: int) -> Envelope:
    """Build an event of the most frequent size."""
    command = CommandId(f"command-{number}")
    return Envelope(
        id=f"event-{number}",
        at=number,
        actor=NodeId("node"),
        boot=BootId("boot"),
        epoch=1,
        cause=command,
        event=CommandRejected(command=command, code="model_not_running", reason="place it first"),
    )


async def measure_replay(directory: Path) -> list[Result]:
    """Fill a log, then fold it from the beginning and from a snapshot near its end."""
    async with Hub(HubSettings(directory=directory, name="bench"), credentials=Credentials("bench")) as hub:
        await _fill(hub.bus)
        cold, projection = await _fold(hub.bus)
        await save_snapshot(hub.bus, projection.state)
        for number in range(EVENTS, EVENTS + 100):
            await _append(hub.bus, number)
        warm, _ = await _fold(hub.bus)
    rate = f"{EVENTS / cold:.0f} events/s"
    return [
        Result("micro", "cold projection of 100,000 events", cold, "s", "at most", 2, note=rate),
        Result("micro", "the same with a snapshot", warm, "s", "at most", 0.3),
    ]


async def _append(bus: Bus, number: int) -> None:
    event = rejection(number)
    await bus.append(subject_of_event(event.event), codec.encode(event), headers=envelope.headers_of_fact(event.id))


async def _fill(bus: Bus) -> None:
    for start in range(0, EVENTS, WINDOW):
        await asyncio.gather(*(_append(bus, number) for number in range(start, start + WINDOW)))


async def _fold(bus: Bus) -> tuple[float, Projection]:
    projection = Projection(bus)
    started = time.perf_counter()
    running = asyncio.create_task(projection.run())
    await projection.caught_up(timeout=120)
    elapsed = time.perf_counter() - started
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return elapsed, projection
