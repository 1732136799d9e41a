"""Telling a cancellation that was asked for from one that leaked out of a library. Used by loops that must not end.

nats-py cancels its own tasks and awaits what they were waiting for; the `CancelledError` then comes out of
a plain call, and a loop that takes it for its own ends without a word.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


def is_cancelled() -> bool:
    """Whether somebody cancelled the running task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def run_apart(work: Coroutine[Any, Any, None], *, timeout: float) -> None:
    """Await `work` in a task of its own, so that a cancellation inside ends nothing but it.

    `TimeoutError` after `timeout` seconds, and when the work was cancelled from inside.
    """
    task = asyncio.create_task(work)
    task.add_done_callback(_look_at)
    try:
        await asyncio.wait({task}, timeout=timeout)
    finally:
        task.cancel()
    if not task.done() or task.cancelled():
        raise TimeoutError
    await task


def _look_at(task: asyncio.Task[None]) -> None:
    """An error that comes after the time-out is nobody's any more."""
    if not task.cancelled():
        task.exception()
