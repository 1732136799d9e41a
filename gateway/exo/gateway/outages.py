"""When the broker was lost and when it came back, for everybody here who has to bear with it.

The hub may have moved to another node meanwhile: what the new one lacks is brought to it again, by the
nodes and by the gateways. Until `PATIENCE` has passed, what is not there may still come.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from exo.broker.bus import Bus
from exo.gateway.errors import GatewayError
from exo.gateway.ports import StateSource
from exo.streams.codes import Code
from exo.streams.state import State

PATIENCE: Final = 20.0
"""Seconds after a return in which nobody concludes from something's absence that it is gone."""


class Outages:
    """One per gateway.

    `explain` says in words who is hub, or who was and what is happening; `explain_full` why the broker's
    store takes nothing new, if it does not.
    """

    def __init__(
        self, bus: Bus, states: StateSource, *, explain: Callable[[], str], explain_full: Callable[[], str] = str
    ) -> None:
        self.lost_at = 0.0
        """Since when there is no broker, on the monotonic clock; 0 while there is one."""
        self.connected = asyncio.Event()
        if bus.connected:
            self.connected.set()
        self._explain = explain
        self._explain_full = explain_full
        self._returned_at = float("-inf")
        self._listeners: list[Callable[[], None]] = []
        self._stop_listening = (bus.on_connection_change(self._on_connection), states.on_session(self._on_session))

    @property
    def settling(self) -> bool:
        """Whether what is missing may still be on its way."""
        return monotonic() - self._returned_at < PATIENCE

    def on_return(self, listener: Callable[[], None]) -> None:
        """Call `listener()` at each return of the connection and at each new session; it must be quick."""
        self._listeners.append(listener)

    async def wait_connected(self, *, timeout: float) -> None:
        """Wait for the broker; the refusal of `describe` after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self.connected.wait()
        except TimeoutError as error:
            raise self.describe() from error

    def find_full(self) -> GatewayError | None:
        """Give the refusal of whatever would have to be stored, if the store is full."""
        reason = self._explain_full()
        return GatewayError(Code.BROKER_UNAVAILABLE, f"Nothing new can be stored: {reason}.") if reason else None

    def describe(self) -> GatewayError:
        """Give the refusal of whoever cannot be served without the broker."""
        since = f" for {monotonic() - self.lost_at:.0f} s" if self.lost_at else ""
        return GatewayError(
            Code.BROKER_UNAVAILABLE,
            f"The message broker has not been reached{since}: {self._explain()}. Try again shortly; `exo status` "
            "shows how far it is.",
        )

    def stop(self) -> None:
        """Listen no longer."""
        for stop in self._stop_listening:
            stop()

    def _on_connection(self, connected: bool) -> None:  # noqa: FBT001 - the port's listener
        if not connected:
            self.lost_at = self.lost_at or monotonic()
            self.connected.clear()
            return
        self.lost_at = 0.0
        self.connected.set()
        self._tell()

    def _on_session(self, _old: State, _new: State) -> None:
        self._tell()

    def _tell(self) -> None:
        self._returned_at = monotonic()
        for listener in self._listeners:
            listener()
