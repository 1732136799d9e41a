"""A key that one process holds at a time, renewed while it lives and gone soon after it died.

The master's right to work and a node's presence are leases. Holding one does not fence: a paused
holder may act late, so decisions also carry the epoch (architecture section 3, rule 3).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from exo.broker.bus import Bus, KeyEntry
from exo.broker.errors import BrokerError, BusUnavailableError, ConflictError
from exo.streams.layout import LEASE_RENEWAL, LEASE_TTL

log = structlog.get_logger(__name__)

RETRY: Final = 0.2


class Lease:
    """One try to hold `bucket`/`key` with `value`. `ttl` (whole seconds) and `renewal` as in the layout.

    The server counts the TTL by its wall clock, so the holder keeps a deadline on its own monotonic
    one, counted from *before* each renewal was sent: `held` turns false no later than the key is gone.
    """

    def __init__(
        self,
        bus: Bus,
        bucket: str,
        key: str,
        *,
        value: bytes,
        ttl: int = LEASE_TTL,
        renewal: float = LEASE_RENEWAL,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._bus = bus
        self._bucket = bucket
        self._key = key
        self._value = value
        self._ttl = ttl
        self._renewal = renewal
        self._on_lost = on_lost
        self._revision = 0
        self._deadline = 0.0
        self._renewer: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """Whether we may act as the holder now."""
        return self._renewer is not None and self._now() < self._deadline

    async def acquire(self) -> bool:
        """Take the lease if nobody has it; a key that carries our own value is taken over.

        False when somebody else holds it.
        """
        if self._renewer is not None:
            return self.held
        started = self._now()
        try:
            self._revision = await self._put(0)
        except ConflictError:
            entry = await self.holder()
            if entry is None or entry.value != self._value:
                return False
            try:
                self._revision = await self._put(entry.revision)
            except ConflictError:
                return False
        self._deadline = started + self._ttl
        self._renewer = asyncio.create_task(self._renew(), name=f"lease {self._bucket}.{self._key}")
        return True

    async def holder(self) -> KeyEntry | None:
        """Give the current holder's entry."""
        return await self._bus.get(self._bucket, self._key)

    async def lapse(self) -> None:
        """Renew no more: the key is gone after its TTL, unless `acquire` or `release` comes first."""
        renewer, self._renewer = self._renewer, None
        if renewer is not None:
            renewer.cancel()
            with suppress(asyncio.CancelledError):
                await renewer

    async def release(self) -> None:
        """Give the lease back, so that nobody has to wait for its end; safe to call twice."""
        await self.lapse()
        revision, self._revision = self._revision, 0
        if revision == 0:
            return
        with suppress(BrokerError):
            # Only our own: the server refuses if somebody took it meanwhile. An empty value counts as absent.
            await self._bus.put(self._bucket, self._key, b"", revision=revision)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._renewal)
            if not await self._renew_once():
                break
        self._renewer = None
        self._revision = 0
        log.warning("lease lost", bucket=self._bucket, key=self._key)
        try:
            self._on_lost()
        except Exception:
            log.exception("lease listener failed")

    async def _renew_once(self) -> bool:
        """Renew, trying again until our deadline; False when the lease is lost."""
        while True:
            started = self._now()
            if started >= self._deadline:
                return False
            try:
                async with asyncio.timeout(self._deadline - started):
                    self._revision = await self._put(self._revision)
            except ConflictError:
                if not await self._is_still_ours():
                    return False
            except (BusUnavailableError, TimeoutError) as error:
                log.info("lease renewal failed", key=self._key, reason=str(error) or "timeout")
                await asyncio.sleep(min(RETRY, max(0, self._deadline - self._now())))
            else:
                self._deadline = started + self._ttl
                return True

    async def _is_still_ours(self) -> bool:
        """Tell a lost lease from a renewal that was stored although its answer was lost, or a server that restarted."""
        with suppress(BusUnavailableError, TimeoutError):
            async with asyncio.timeout(max(0, self._deadline - self._now())):
                entry = await self.holder()
                if entry is not None and entry.value != self._value:
                    return False
                # A restarted server holds no lease at all: whoever creates the key first has it.
                self._revision = entry.revision if entry is not None else 0
        return True

    async def _put(self, revision: int) -> int:
        return await self._bus.put(self._bucket, self._key, self._value, revision=revision, ttl=self._ttl)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
