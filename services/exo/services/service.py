"""How a long-running part of a node is run: until it is cancelled, and again after an error.

`NodeServices` starts each part through `supervise`; a part never starts tasks outside its own task
group.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from exo.broker.cancellation import is_cancelled
from exo.broker.errors import BusUnavailableError
from exo.services.clock import Clock

log = structlog.get_logger(__name__)

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
_CALM = 30.0
"""Seconds without an error after which the next one counts as the first."""


async def supervise(name: str, run: Callable[[], Awaitable[None]], *, clock: Clock) -> None:
    """Run a part for ever: an error is logged, and after a growing pause it starts again.

    Returns when `run` does. Losing the broker is expected and logged without a traceback.
    """
    pause = FIRST_PAUSE
    while True:
        started = clock.monotonic()
        try:
            return await run()
        except BusUnavailableError as error:
            log.warning("a service lost the broker", service=name, error=str(error))
        except Exception:
            log.exception("a service failed and starts again", service=name, pause=pause)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            log.exception("a cancellation that nobody asked for ended a service, which starts again", service=name)
        if clock.monotonic() - started > _CALM:
            pause = FIRST_PAUSE
        await clock.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


async def run_until(event: asyncio.Event, work: Awaitable[None]) -> None:
    """Run `work` until it ends or `event` is set; returns when it has wholly ended, and raises what it raised."""
    running, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        running.cancel()
        waiting.cancel()
        outcome, _ = await asyncio.gather(running, waiting, return_exceptions=True)
    if isinstance(outcome, Exception):
        raise outcome
