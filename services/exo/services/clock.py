"""Time as a port, so that everything that waits can be tested without waiting.

`FakeClock` stands still until a test advances it.
"""

import asyncio
import heapq
import itertools
import time
from typing import Protocol


class Clock(Protocol):
    """What services ask of time."""

    def now(self) -> int:
        """Unix time in ms: for records, never for measuring."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump: for measuring, never for records."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The real one."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class FakeClock:
    """Moves only when told to."""

    def __init__(self, *, now: int = 1_700_000_000_000) -> None:
        self._started_at = now
        self._elapsed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> int:
        return self._started_at + round(self._elapsed * 1000)

    def monotonic(self) -> float:
        return self._elapsed

    @property
    def sleeping(self) -> int:
        """How many wait for time to pass."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking sleepers in order and letting each run on until it waits again."""
        end = self._elapsed + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, due)
            if not future.done():
                future.set_result(None)
            await self._settle()
        self._elapsed = end

    @staticmethod
    async def _settle() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
