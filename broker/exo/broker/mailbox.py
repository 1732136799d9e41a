"""What a follower or a work loop has received and not yet taken; ends when the connection is lost.

What was not taken by then is dropped: it can be read again where it is stored, and after a move to
another server it would be a message of the wrong one.
"""

import asyncio
from typing import Generic, TypeVar

from exo.broker.connect import Connection
from exo.broker.errors import BusUnavailableError

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Filled by a feed's handler, emptied by one reader. Usable over one life of the connection."""

    def __init__(self, connection: Connection) -> None:
        self._items: list[T] = []
        self._event = asyncio.Event()
        self._lost = not connection.ready
        self._unhear = connection.on_change(self._hear)

    @property
    def lost(self) -> bool:
        """Whether the connection was lost since this mailbox was made."""
        return self._lost

    def put(self, item: T) -> None:
        if not self._lost:
            self._items.append(item)
            self._event.set()

    async def take(self, timeout: float) -> list[T]:
        """Give all that has come, waiting for the first.

        `TimeoutError` after that many seconds of silence, `BusUnavailableError` once the connection was lost.
        """
        if not self._items and not self._lost:
            self._event.clear()
            async with asyncio.timeout(timeout):
                await self._event.wait()
        if not self._items:
            raise BusUnavailableError("the connection to the broker was lost")
        items, self._items = self._items, []
        return items

    def close(self) -> None:
        self._unhear()

    def _hear(self, connected: bool) -> None:  # noqa: FBT001 - a connection listener
        if not connected:
            self._lost = True
            self._items.clear()
            self._event.set()
