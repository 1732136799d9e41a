"""Who is master: the holder of one lease, renewed each second by compare-and-set.

The lease only says who should try; what makes a master is its epoch record in the log (see `reign`).
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from exo.broker.bus import Bus
from exo.broker.leases import Lease
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
    """Runs `rule` whenever this node holds the lease, and ends it as soon as it does not.

    `ttl` (whole seconds) and `renewal` (seconds, the pace of candidates too) as in the layout. A lease
    is measured by the loop's clock: it must end by itself even where nobody turns a clock.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        node: NodeId,
        boot: BootId,
        rule: Callable[[], Awaitable[None]],
        ttl: int = LEASE_TTL,
        renewal: float = LEASE_RENEWAL,
    ) -> None:
        self._rule = rule
        self._renewal = renewal
        self._lost = asyncio.Event()
        self._lease = Lease(
            bus,
            LEASE.name,
            KEY,
            value=encode(LeaseRecord(node, boot)),
            ttl=ttl,
            renewal=renewal,
            on_lost=self._lost.set,
        )

    async def run(self) -> None:
        """Stand for election for ever. Cancelled, it renews no more; `resign` then spares others the wait."""
        while True:
            await self.stand()
            await asyncio.sleep(self._renewal)

    async def stand(self) -> None:
        """Stand once: rule for as long as the lease is held, if nobody else holds it."""
        try:
            if await self._lease.acquire():
                await self._rule_while_held()
        finally:
            await self._lease.lapse()

    async def resign(self) -> None:
        """Give the lease up, so that another node need not wait for its end; only if it is still ours."""
        await self._lease.release()

    async def _rule_while_held(self) -> None:
        self._lost.clear()
        rule, lost = asyncio.ensure_future(self._rule()), asyncio.ensure_future(self._lost.wait())
        try:
            # The lease may have ended between its claim and this line.
            if self._lease.held:
                await asyncio.wait({rule, lost}, return_when=asyncio.FIRST_COMPLETED)
            ended = rule.done()
        finally:
            for task in (rule, lost):
                task.cancel()
            result, _ = await asyncio.gather(rule, lost, return_exceptions=True)
        if ended:
            # Who rules no more must not keep others from it.
            await self._lease.release()
        if isinstance(result, DeposedError):
            log.warning("this node is no longer the master", reason=str(result))
        elif isinstance(result, Exception):
            raise result
