"""SIGINT and SIGTERM for a node: the first asks for a stop in good order, the second ends at once.

Made by `exo.ops.up` inside the event loop. A stop that takes longer than it may is ended too: whatever
hangs must not keep a machine from being switched off. Children notice by their pipes.
"""

import asyncio
import os
import signal
from collections.abc import Callable

import structlog

from exo.ops.errors import FAILED

log = structlog.get_logger(__name__)


class StopSignals:
    """Listens from when it is made. `patience` in seconds is what a stop in good order may take."""

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._asked = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number.name)

    @property
    def asked(self) -> bool:
        """Whether this node is to stop."""
        return self._asked.is_set()

    def on_stop(self, listener: Callable[[], None]) -> None:
        """Call `listener()` at the first signal, before anything else happens."""
        self._listeners.append(listener)

    async def wait(self) -> None:
        """Wait for the first signal."""
        await self._asked.wait()

    def _stop(self, name: str) -> None:
        if self.asked:
            log.warning("a second signal: stopping at once", signal=name)
            os._exit(FAILED)
        log.info("stopping; a second signal ends at once", signal=name)
        self._asked.set()
        asyncio.get_running_loop().call_later(self._patience, self._give_up)
        for listener in self._listeners:
            listener()

    def _give_up(self) -> None:
        log.error("stopping takes too long: ending without the rest", seconds=self._patience)
        os._exit(FAILED)
