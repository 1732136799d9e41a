"""How quick and how wide the way to another node is: five pings and one short burst over a connection of its own.

Run by `peers.py` on a freshly greeted stream. It is bounded in bytes and in time, and goes in slices,
so the Hellos of the other connections pass between them. Python and TLS add to what is measured: a
link beyond about 1 Gbit/s shows as less than it is.
"""

import asyncio
from statistics import median
from time import perf_counter
from typing import Final

import msgspec

from exo.broker.cluster_frames import Burst, BurstDone, FrameError, Ping, Pong
from exo.broker.cluster_stream import Stream

PINGS: Final = 5
SLICE: Final = 60_000
BURST_SIZE: Final = 4_000_000
BURST_TIME: Final = 0.5
"""Seconds after which a burst over a slow link ends early."""

MOST_FRAMES: Final = 1_000
"""What one connection may ask of us."""

PATIENCE: Final = 10.0


class Measure(msgspec.Struct, frozen=True):
    """Seconds there and back, bytes per second."""

    latency: float
    bandwidth: float


async def measure(stream: Stream, *, bandwidth: bool) -> Measure:
    """Ask the other end, or raise `OSError`, `EOFError` or `FrameError`; 0 for a bandwidth that was not asked for."""
    async with asyncio.timeout(PATIENCE):
        latency = median([await _time_ping(stream, number) for number in range(PINGS)])
        return Measure(latency, await _time_burst(stream, latency) if bandwidth else 0.0)


async def _time_ping(stream: Stream, number: int) -> float:
    started = perf_counter()
    await stream.send(Ping(number))
    if await stream.read() != Pong(number):
        raise FrameError("a ping was not answered by its pong")
    return perf_counter() - started


async def _time_burst(stream: Stream, latency: float) -> float:
    padding, sent = "x" * SLICE, 0
    started = perf_counter()
    while True:
        sent += SLICE
        is_last = sent >= BURST_SIZE or perf_counter() - started > BURST_TIME
        await stream.send(Burst(padding, last=is_last))
        if is_last:
            break
        # `send` returns at once while the socket takes all; let the others have their turn.
        await asyncio.sleep(0)
    answer = await stream.read()
    if answer != BurstDone(sent):
        raise FrameError("a burst did not arrive whole")
    return sent / max(perf_counter() - started - latency, 1e-6)


async def answer(stream: Stream) -> None:
    """Serve the other end until it closes or has asked for enough."""
    received = 0
    for _ in range(MOST_FRAMES):
        try:
            async with asyncio.timeout(PATIENCE):
                frame = await stream.read()
        except EOFError:
            return
        match frame:
            case Ping(number):
                await stream.send(Pong(number))
            case Burst(padding, last):
                received += len(padding)
                if last:
                    await stream.send(BurstDone(received))
                    received = 0
            case _:
                raise FrameError(f"a probe does not send {type(frame).__name__}")
