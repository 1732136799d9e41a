"""Noticing the loss and the return of the hub that is followed. Used by `cluster.py` at each of its steps."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from exo.broker.arbitration import is_serving
from exo.broker.connect import Connection
from exo.broker.errors import BrokerError
from exo.broker.peering import Peer
from exo.broker.peers import Peers
from exo.broker.situation import Situation

log = structlog.get_logger(__name__)

PROBE: Final = 1.0
"""Seconds that a hub which is silent on its cluster port gets to answer on the bus."""


class HubWatch:
    """Keeps the situation in step with the connection. `on_new_session`: the hub began another one in place."""

    def __init__(
        self, connection: Connection, peers: Peers, situation: Situation, *, on_new_session: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._peers = peers
        self._situation = situation
        self._on_new_session = on_new_session
        self._probe: asyncio.Task[None] | None = None
        self._probed_at = 0.0

    def look(self, now: float) -> None:
        """Look once; `now` is monotonic seconds."""
        situation = self._situation
        if situation.role == "following":
            if self._connection.ready:
                self._look_at_hub(now)
            else:
                self._lose(since=now)
        elif situation.role == "lost" and self._connection.ready:
            situation.regain()
            self._peers.announce()
        elif situation.role == "lost" and situation.last_hub in self._peers.reached():
            # It may have been held because the hub was silent.
            self._connection.release()

    async def stop(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)

    def _look_at_hub(self, now: float) -> None:
        hub = self._peers.known().get(self._situation.hub)
        if hub is None:
            return
        if self._situation.hub in self._peers.reached():
            if is_serving(hub.hello) and self._situation.hear(hub.hello):
                self._on_new_session()
        elif now - self._probed_at > PROBE and (self._probe is None or self._probe.done()):
            self._probed_at = now
            self._probe = asyncio.create_task(self._ask(hub), name="probe of a silent hub")

    async def _ask(self, hub: Peer) -> None:
        """A host that vanished closes nothing: ask it once, instead of waiting for TCP or for the pings."""
        with suppress(BrokerError):
            await self._connection.flush(PROBE)
            return
        situation = self._situation
        is_followed = situation.role == "following" and situation.hub == hub.hello.node
        if is_followed and situation.hub not in self._peers.reached():
            log.warning("the hub is silent", hub=hub.hello.name)
            self._connection.hold()
            self._lose(since=hub.heard_at)

    def _lose(self, *, since: float) -> None:
        self._situation.lose(since=since)
        self._peers.announce()
