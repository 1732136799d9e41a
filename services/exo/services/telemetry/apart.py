"""Runs what may hang - a dead network disk, a driver - where nobody waits for it when the node stops."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_apart(read: Callable[[], T]) -> T:
    """Run `read` in a thread of its own and give what it gives, or raise what it raises.

    Not `asyncio.to_thread`: its few threads are shared, and the interpreter waits for them at the end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # pyright: ignore[reportArgumentType] - None only where T allows it

    def work() -> None:
        result, failure = None, None
        try:
            result = read()
        except Exception as error:  # noqa: BLE001 - carried to whoever waits
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            # The loop was closed meanwhile: nobody waits any more.
            return

    threading.Thread(target=work, daemon=True, name="telemetry").start()
    return await future
