"""A process that follows the event log as a node does, and says how it is: started by `soak.py`.

The first line of its input holds the settings of its connection as JSON; each one after that is answered with one
JSON object.
"""

import asyncio
import logging
import os
import sys

import msgspec
import psutil
import structlog
import uvloop

from exo.broker.nats_bus import NatsBus
from exo.broker.policy import ConnectionSettings
from exo.services.projection import Projection
from exo.streams.codec import hash_state


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """Where a follower stands and what it costs. `resident` is in bytes."""

    applied: int
    state_hash: str
    resident: int
    descriptors: int


async def follow(settings: ConnectionSettings) -> None:
    """Follow until the input ends."""
    async with NatsBus(settings) as bus:
        projection = Projection(bus)
        running = asyncio.create_task(projection.run())
        while await asyncio.to_thread(sys.stdin.readline):
            await projection.caught_up(timeout=60)
            process = psutil.Process(os.getpid())
            measure = Measure(
                applied=projection.state.applied,
                state_hash=hash_state(projection.state),
                resident=process.memory_info().rss,
                descriptors=process.num_fds(),
            )
            print(msgspec.json.encode(measure).decode(), flush=True)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def main() -> None:
    """Read where to connect, then follow."""
    # What it answers is for the program that started it alone.
    warnings = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(wrapper_class=warnings, logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    uvloop.run(follow(msgspec.json.decode(sys.stdin.readline(), type=ConnectionSettings)))


if __name__ == "__main__":
    main()
