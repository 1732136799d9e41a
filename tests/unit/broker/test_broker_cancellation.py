"""A cancellation that leaks out of a library ends nobody who was not cancelled."""

import asyncio

import pytest

from exo.broker.cancellation import is_cancelled, run_apart


async def leak() -> None:
    """Await a task that was cancelled, as nats-py does."""
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


async def test_a_cancellation_from_inside_is_a_time_out() -> None:
    with pytest.raises(TimeoutError):
        await run_apart(leak(), timeout=5)


async def test_work_that_hangs_is_left() -> None:
    with pytest.raises(TimeoutError):
        await run_apart(asyncio.sleep(60), timeout=0.01)


async def test_an_error_comes_through() -> None:
    async def fail() -> None:
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        await run_apart(fail(), timeout=5)


async def test_a_leak_is_told_from_a_cancellation() -> None:
    seen: list[bool] = []
    leaked = asyncio.Event()

    async def hear() -> None:
        try:
            await leak()
        except asyncio.CancelledError:
            seen.append(is_cancelled())
            leaked.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(is_cancelled())
            raise

    task = asyncio.create_task(hear())
    await leaked.wait()
    task.cancel()
    await asyncio.wait({task})
    assert seen == [False, True]
