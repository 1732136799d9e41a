"""Whether this node tries to rule, and over which hub.

The hub's own node does, from the moment its hub serves; any other one only when nobody has held the
lease for a while, because the hub's node may hang. Each reign has a connection of its own, bound to
one hub: when the hub moves, everything of that reign ends before a new one may begin.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from exo.broker.bus import Bus
from exo.broker.errors import BusUnavailableError, NotFoundError
from exo.services.clock import Clock
from exo.services.link import ClusterLink
from exo.services.master.election import KEY, Election
from exo.services.service import run_until
from exo.streams.ids import BootId, NodeId
from exo.streams.layout import LEASE, LEASE_RENEWAL, LEASE_TTL

log = structlog.get_logger(__name__)

VACANCY = float(LEASE_TTL)
"""Seconds without a holder after which a node that is not the hub stands."""

_RETRY = 0.2

Rule = Callable[[Bus], Awaitable[None]]


class Candidacy:
    """Stands for as long as `run` runs. `rule(bus)` is a reign on that connection; it returns when it is over."""

    def __init__(
        self,
        link: ClusterLink,
        *,
        node: NodeId,
        boot: BootId,
        rule: Rule,
        clock: Clock,
    ) -> None:
        self._link = link
        self._node = node
        self._boot = boot
        self._rule = rule
        self._clock = clock
        self._moved = asyncio.Event()

    async def run(self) -> None:
        """Stand under one hub after the other, until cancelled; gives the lease back then."""
        stop_listening = self._link.on_move(self._moved.set)
        try:
            while True:
                self._moved.clear()
                try:
                    await run_until(self._moved, self._stand())
                except (BusUnavailableError, NotFoundError) as error:
                    log.debug("this node cannot stand for election yet", reason=str(error))
                    await run_until(self._moved, self._clock.sleep(_RETRY))
        finally:
            stop_listening()

    async def _stand(self) -> None:
        while True:
            if not self._link.is_hub:
                await self._wait_for_vacancy()
                log.warning("nobody rules; this node stands in for the hub's", hub=self._link.hub)
            bus = await self._link.open_master_bus()
            try:
                await self._stand_on(bus)
            finally:
                await bus.close()

    async def _stand_on(self, bus: Bus) -> None:
        election = Election(bus, node=self._node, boot=self._boot, rule=lambda: self._rule(bus))
        try:
            if self._link.is_hub:
                await election.run()
            else:
                await election.stand()
        finally:
            # A hub that is gone keeps no lease, and asking it would hold up the next reign.
            if bus.connected and not self._moved.is_set():
                await election.resign()

    async def _wait_for_vacancy(self) -> None:
        """Return when the lease was absent for `VACANCY` seconds on end; what cannot be seen is not absent."""
        since: float | None = None
        while True:
            now = self._clock.monotonic()
            try:
                is_absent = await self._link.bus.get(LEASE.name, KEY) is None
            except (BusUnavailableError, NotFoundError):
                is_absent = False
            if not is_absent:
                since = None
            elif since is None:
                since = now
            elif now - since >= VACANCY:
                return
            await self._clock.sleep(LEASE_RENEWAL)
