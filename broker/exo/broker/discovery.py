"""Nodes of the same LAN by zeroconf: says where our cluster port is, and hears where others are.

Run by `peers.py`. What is found is only an address to dial; who is there is proven by the greeting.
Discovery may fail - no network, no multicast, a strict firewall - and then says why and tries again
when the machine's addresses change; nothing else depends on it.
"""

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Any, Final, cast

import structlog
from zeroconf import Error as ZeroconfError
from zeroconf import InterfaceChoice, IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from exo.broker.addresses import Address, list_interface_addresses, list_usable
from exo.broker.cluster_frames import PROTOCOL
from exo.broker.peer_notes import now_ms
from exo.broker.peering import DiscoveryState, PeersSettings, Stranger
from exo.streams.ids import NodeId

log = structlog.get_logger(__name__)

SERVICE: Final = "_exo._tcp.local."
POLL: Final = 10.0
"""Seconds between two looks at the machine's addresses."""

ASK_TIMEOUT: Final = 3000
"""Milliseconds to ask for the details of a service."""

LONGEST_TXT: Final = 200


class Discovery:
    """Registers and browses between `start` and `stop`."""

    def __init__(
        self,
        settings: PeersSettings,
        *,
        port: int,
        suggest: Callable[[str, NodeId], None],
        stranger: Callable[[Stranger], None],
        stranger_left: Callable[[NodeId], None],
    ) -> None:
        self._settings, self._port = settings, port
        self._suggest, self._stranger, self._stranger_left = suggest, stranger, stranger_left
        self._failure = ""
        self._found: dict[str, NodeId] = {}
        """Services of this cluster by name; one of an earlier life may still be in caches."""
        self._strangers: dict[str, NodeId] = {}
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._addresses: tuple[str, ...] = ()
        self._task: asyncio.Task[None] | None = None
        self._lookups: set[asyncio.Task[None]] = set()

    @staticmethod
    def off() -> DiscoveryState:
        """Give the state of a discovery that was not asked for."""
        return DiscoveryState("off")

    @property
    def state(self) -> DiscoveryState:
        if self._zeroconf is not None:
            return DiscoveryState("running", seen=self._count_others())
        return DiscoveryState("failed", self._failure or "it has not started yet")

    def _count_others(self) -> int:
        return len({*self._found.values()} - {self._settings.node})

    async def start(self) -> None:
        """Begin in the background."""
        self._task = asyncio.create_task(self._run(), name="discovery")

    async def stop(self) -> None:
        """Say good-bye; safe to call twice."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._close()

    async def _run(self) -> None:
        while True:
            host = self._settings.host
            addresses = (host,) if host else tuple(list_usable(list_interface_addresses()))
            if addresses != self._addresses or self._zeroconf is None:
                await self._close()
                await self._open(addresses)
            await asyncio.sleep(POLL)

    async def _open(self, addresses: tuple[str, ...]) -> None:
        if not addresses:
            self._fail("this machine has no network address")
            return
        try:
            await self._register(addresses)
        except (OSError, ZeroconfError, TimeoutError) as error:
            await self._close()
            self._fail(str(error) or type(error).__name__)
        except Exception as error:
            log.exception("discovery failed")
            await self._close()
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self._failure = ""
            log.info("looking for nodes on the network", addresses=list(addresses))

    async def _register(self, addresses: tuple[str, ...]) -> None:
        v4_only = not any(":" in one for one in addresses)
        zeroconf = AsyncZeroconf(
            interfaces=[self._settings.host] if self._settings.host else InterfaceChoice.All,
            ip_version=IPVersion.V4Only if v4_only else IPVersion.All,
        )
        self._zeroconf, self._addresses = zeroconf, addresses
        register = cast("Any", zeroconf.async_register_service)  # gives an awaitable of an unnamed type
        await (await register(self._describe(addresses), cooperating_responders=True))
        self._browser = AsyncServiceBrowser(zeroconf.zeroconf, SERVICE, handlers=[self._hear])

    def _describe(self, addresses: tuple[str, ...]) -> AsyncServiceInfo:
        settings = self._settings
        properties = {
            "cluster": settings.cluster[:LONGEST_TXT],
            "node": settings.node,
            "name": settings.name[:LONGEST_TXT],
            "version": settings.version,
            "protocol": str(PROTOCOL),
        }
        # The boot's id too: a service of this node's last life may still be in caches.
        label = f"{settings.node[:32]}-{settings.boot[:8]}"
        return AsyncServiceInfo(
            SERVICE,
            f"{label}.{SERVICE}",
            port=self._port,
            properties=properties,
            server=f"{label}.local.",
            parsed_addresses=list(addresses),
        )

    def _fail(self, reason: str) -> None:
        if reason != self._failure:
            log.warning("cannot look for nodes on the network", reason=reason)
        self._failure = reason

    def _hear(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Removed:
            self._found.pop(name, None)
            self._miss_stranger(name)
            return
        task = asyncio.create_task(self._look_up(zeroconf, name), name=f"look up {name}")
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    async def _look_up(self, zeroconf: Zeroconf, name: str) -> None:
        try:
            info = AsyncServiceInfo(SERVICE, name)
            if await info.async_request(zeroconf, ASK_TIMEOUT):
                self._take(name, info)
        except (OSError, ZeroconfError) as error:
            log.debug("cannot look up a service", name=name, reason=str(error))

    def _take(self, name: str, info: AsyncServiceInfo) -> None:
        said = {key: value or "" for key, value in info.decoded_properties.items()}
        node = NodeId(said.get("node", ""))
        if node == self._settings.node and name.startswith(f"{node[:32]}-{self._settings.boot[:8]}."):
            return
        hosts = [one for one in info.parsed_addresses(IPVersion.All) if _needs_no_scope(one)]
        addresses = [str(Address(host, info.port or 0)) for host in hosts]
        if said.get("cluster") != self._settings.cluster[:LONGEST_TXT]:
            self._found.pop(name, None)
            self._strangers[name] = node
            self._meet_stranger(node, said, address=addresses[0] if addresses else "")
            return
        self._miss_stranger(name)
        self._found[name] = node
        for address in addresses:
            self._suggest(address, node)

    def _meet_stranger(self, node: NodeId, said: dict[str, str], *, address: str) -> None:
        cluster, version = said.get("cluster", ""), said.get("version", "")
        self._stranger(
            Stranger(
                node=node,
                name=said.get("name", ""),
                cluster=cluster,
                version=version,
                address=address,
                seen_at=now_ms(),
            )
        )

    def _miss_stranger(self, name: str) -> None:
        node = self._strangers.pop(name, None)
        if node is not None and node not in self._strangers.values():
            self._stranger_left(node)

    async def _close(self) -> None:
        zeroconf, self._zeroconf = self._zeroconf, None
        for task in self._lookups:
            task.cancel()
        if zeroconf is None:
            return
        self._found.clear()
        for name in tuple(self._strangers):
            self._miss_stranger(name)
        try:
            if self._browser is not None:
                await self._browser.async_cancel()
            async with asyncio.timeout(2):
                await zeroconf.async_unregister_all_services()
                await zeroconf.async_close()
        except (OSError, ZeroconfError, TimeoutError) as error:
            log.debug("discovery did not end cleanly", reason=str(error))
        self._browser = None


def _needs_no_scope(host: str) -> bool:
    address = ipaddress.ip_address(host.partition("%")[0])
    return not (address.version == 6 and address.is_link_local)
