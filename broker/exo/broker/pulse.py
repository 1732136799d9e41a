"""Noticing that the machine, or this process, was asleep. Run by `cluster.py`.

A monotonic clock may stand still while a lid is closed and a wall clock may be set at any time, so
both are compared; mistaking a set clock for sleep costs a hub one question to its peers.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

PERIOD: Final = 0.5
SLEPT: Final = 3.0
"""Seconds by which a beat comes late, or the clocks part, after which it counts as sleep."""


async def watch_sleep(on_wake: Callable[[], None]) -> None:
    """Call `on_wake()` after each sleep, for ever."""
    while True:
        monotonic, wall = time.monotonic(), time.time()
        await asyncio.sleep(PERIOD)
        if has_slept(time.monotonic() - monotonic, time.time() - wall):
            on_wake()


def has_slept(by_monotonic: float, by_wall: float) -> bool:
    """Judge one beat by the seconds that the two clocks counted."""
    return by_monotonic - PERIOD > SLEPT or abs(by_wall - by_monotonic) > SLEPT
