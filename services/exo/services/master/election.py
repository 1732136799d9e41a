"""Who is master: the holder of one key with a time to live, renewed each second by compare-and-set.

The lease only says who should try; what makes a master is its epoch record in the log (see `reign`).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from exo.broker.bus import Bus
from exo.broker.errors import BusUnavailableError, ConflictError
from exo.services.clock import Clock
from exo.services.master.reign import DeposedError
from exo.streams.codec import encode
from exo.streams.ids import BootId, NodeId
from exo.streams.layout import LEASE, LEASE_RENEWAL, LEASE_TTL

log = structlog.get_logger(__name__)

KEY = "master"


class LeaseRecord(msgspec.Struct, frozen=True):
    """The value of the key."""

    node: NodeId
    boot: BootId


class Election:
    """Runs `rule` whenever this node holds the lease, and ends it as soon as it does not."""

    def __init__(
        self, bus: Bus, *, node: NodeId, boot: BootId, clock: Clock, rule: Callable[[], Awaitable[None]]
    ) -> None:
        self._bus = bus
        self._record = encode(LeaseRecord(node, boot))
        self._clock = clock
        self._rule = rule
        self._revision: int | None = None

    async def run(self) -> None:
        """Stand for election for ever."""
        while True:
            if await self._claim():
                await self._rule_while_held()
            await self._clock.sleep(LEASE_RENEWAL)

    async def resign(self) -> None:
        """Give the lease up, so that another node need not wait for its end."""
        if self._revision is not None:
            self._revision = None
            with contextlib.suppress(BusUnavailableError):
                await self._bus.delete(LEASE.name, KEY)

    async def _claim(self) -> bool:
        entry = await self._bus.get(LEASE.name, KEY)
        if entry is not None and entry.value != self._record:
            return False
        try:
            revision = entry.revision if entry else 0
            self._revision = await self._bus.put(LEASE.name, KEY, self._record, revision=revision, ttl=LEASE_TTL)
        except ConflictError:
            return False
        return True

    async def _rule_while_held(self) -> None:
        rule = asyncio.ensure_future(self._rule())
        hold = asyncio.ensure_future(self._hold())
        try:
            await asyncio.wait({rule, hold}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (rule, hold):
                task.cancel()
            results = await asyncio.gather(rule, hold, return_exceptions=True)
        for result in results:
            if isinstance(result, DeposedError):
                log.warning("this node is no longer the master", reason=str(result))
            elif isinstance(result, Exception):
                raise result

    async def _hold(self) -> None:
        """Renew until the lease is lost."""
        renewed = self._clock.monotonic()
        while self._clock.monotonic() - renewed < LEASE_TTL:
            await self._clock.sleep(LEASE_RENEWAL)
            try:
                if not await self._renew():
                    log.warning("another node has taken the lease")
                    return
                renewed = self._clock.monotonic()
            except BusUnavailableError:
                continue
        log.warning("the lease could not be renewed in time")

    async def _renew(self) -> bool:
        try:
            self._revision = await self._bus.put(LEASE.name, KEY, self._record, revision=self._revision, ttl=LEASE_TTL)
        except ConflictError:
            # A broker that was restarted has forgotten all leases: ours is claimed anew, the reign goes on.
            return await self._claim()
        return True
