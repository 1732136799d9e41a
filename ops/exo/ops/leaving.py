"""What a node does before anything of it is taken down: it gets nothing new, and what it has may end.

Used by `exo.ops.up` after a signal, while HTTP and the bus still work. It waits for requests on runners
here, and for answers that this node's clients get from other nodes' runners. Waits for nobody else.
"""

import asyncio
from collections.abc import Callable
from time import monotonic

import structlog

from exo.services.node import NodeServices

log = structlog.get_logger(__name__)

_LOOK_AGAIN = 0.05


async def leave_work(services: NodeServices, *, count_answers: Callable[[], int], grace: float) -> None:
    """Take nothing new; give requests `grace` seconds, then end the runners."""
    await services.begin_leaving()
    working = sum(len(runner.tasks) for runner in services.worker.reports())
    answering = count_answers()
    if working or answering:
        log.info("waiting for requests to end", at_most=f"{grace:g} s", on_runners=working, at_the_api=answering)
    await asyncio.gather(services.worker.stop(grace=grace), _until_answered(count_answers, grace=grace))


async def _until_answered(count_answers: Callable[[], int], *, grace: float) -> None:
    until = monotonic() + grace
    while True:
        if not count_answers() or monotonic() >= until:
            return
        await asyncio.sleep(_LOOK_AGAIN)
