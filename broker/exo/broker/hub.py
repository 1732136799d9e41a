"""The one nats-server of a cluster, run by the node that is hub: lock the store, start, provision, let nodes in.

Used by `cluster.py`, which decides when. `bus` is the hub's own connection, which may do everything and
makes the streams: at the start, and again after each restart of the server in place.

Order of stopping, each step needing the ones below it: whoever uses the server has left; the watch
ends; the admin connection closes, so that lame-duck mode ends as soon as the last client is gone; the
server flushes and stops; then the lock is given back.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
import structlog

from exo.broker.addresses import list_hosts
from exo.broker.certificates import TlsFiles
from exo.broker.config import LOOPBACK, ServerSettings, User, choose_scale
from exo.broker.connect import Connection
from exo.broker.credentials import Credentials
from exo.broker.errors import BusUnavailableError, PermissionDeniedError
from exo.broker.nats_bus import NatsBus
from exo.broker.permissions import HUB, MASTER, READER, inbox_of, node_role, permit
from exo.broker.policy import ConnectionSettings
from exo.broker.provision import provision
from exo.broker.server import NatsServer
from exo.broker.store import StoreLock, measure_room
from exo.broker.watch import Watch
from exo.streams.ids import NodeId
from exo.streams.layout import EVENTS

log = structlog.get_logger(__name__)

ADMIT_TIMEOUT: Final = 5.0
_POLL: Final = 0.01
_HUNG_AFTER: Final = 0.5
"""A server that does not answer that long (seconds) when we want to stop is not asked but killed."""


class HubSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`directory` holds all files of this server. `port` 0 lets the system pick. `binary` None searches.

    `first_sequence` is where EXO_EVENTS begins if it does not exist yet. `tls` is needed beyond loopback.
    """

    directory: Path
    name: str
    host: str = LOOPBACK
    port: int = 0
    binary: Path | None = None
    first_sequence: int = 1
    tls: TlsFiles | None = None
    nodes: tuple[NodeId, ...] = ()


class Hub:
    """A running server with its admin connection; use it as an async context manager.

    `on_ready` is called after the start and after each restart in place, `on_store_lost` once when the
    store was removed under the server.
    """

    def __init__(
        self,
        settings: HubSettings,
        *,
        credentials: Credentials,
        on_ready: Callable[["Hub"], None] | None = None,
        on_store_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._credentials = credentials
        self._nodes = set(settings.nodes)
        self._admitting = asyncio.Lock()
        self._hosts: tuple[str, ...] = ()
        """The names and addresses in the server's certificate."""
        server_settings = ServerSettings(
            directory=settings.directory,
            name=settings.name,
            host=settings.host,
            port=settings.port,
            users=self._list_users(),
        )
        self.server = NatsServer(server_settings, binary=settings.binary, on_ready=self._tell_ready)
        self._on_ready = on_ready
        self._on_store_lost = on_store_lost
        self._bus: NatsBus | None = None
        self._watch: Watch | None = None
        self._stack = AsyncExitStack()

    def _tell_ready(self) -> None:
        if self._on_ready is not None:
            self._on_ready(self)

    @property
    def bus(self) -> NatsBus:
        """The admin connection; only while the hub is up."""
        if self._bus is None:
            raise RuntimeError("the hub is not up")
        return self._bus

    @property
    def watch(self) -> Watch | None:
        """The watch over the server, while the hub is up."""
        return self._watch

    @property
    def port(self) -> int:
        """Where clients connect."""
        return int(self.server.url.rpartition(":")[2])

    @property
    def url(self) -> str:
        """Where clients of this machine connect."""
        return f"{'tls' if self.settings.tls else 'nats'}://{LOOPBACK}:{self.port}"

    async def start(self) -> None:
        """Come up or raise; nothing is left behind on failure."""
        async with AsyncExitStack() as stack:
            stack.enter_context(StoreLock(self.settings.directory))
            self._write_certificate()
            await stack.enter_async_context(self.server)
            bus = NatsBus(self.connection_settings(HUB, name="hub"), restore=self._provision)
            self._bus = await stack.enter_async_context(bus)
            await self._provision(bus.connection)
            self._watch = Watch(self.server, bus.connection, on_store_lost=self._on_store_lost)
            self._watch.start()
            stack.push_async_callback(self._watch.stop)
            self._stack = stack.pop_all()

    def connection_settings(self, role: str, *, name: str) -> ConnectionSettings:
        """Give what connects a process of this machine in a role."""
        return ConnectionSettings(
            url=self.url, name=name, seed=self._credentials.seed(role), inbox=inbox_of(role), tls=self.settings.tls
        )

    async def admit(self, nodes: Iterable[NodeId], *, departed: Collection[NodeId] = ()) -> None:
        """Make these nodes' users; returns once they can connect. Without effect for those who can already.

        The users of those who have departed go at the same time.
        """
        async with self._admitting:
            new = sorted(set(nodes) - self._nodes)
            if not new:
                return
            self._nodes.difference_update(departed)
            self._nodes.update(new)
            if list_hosts() != self._hosts:
                self._write_certificate()
            self.server.set_users(self._list_users())
            await self._wait_admitted(new[-1])
            log.info("nodes may connect to the message server", nodes=new)

    async def _wait_admitted(self, node: NodeId) -> None:
        settings = self.connection_settings(node_role(node), name="admission")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ADMIT_TIMEOUT
        while True:
            try:
                async with NatsBus(settings):
                    return
            except (PermissionDeniedError, BusUnavailableError) as error:
                if loop.time() >= deadline:
                    raise BusUnavailableError(f"{node} is not let in yet: {error}") from error
            await asyncio.sleep(_POLL)

    def _write_certificate(self) -> None:
        """Have the server show a certificate of this machine's present addresses, from its next load on."""
        members, self._hosts = self.settings.tls, list_hosts()
        if members is not None:
            directory = self.settings.directory
            tls = self._credentials.write_server_tls(directory, members=members, hosts=self._hosts)
            self.server.settings = msgspec.structs.replace(self.server.settings, tls=tls)

    def _list_users(self) -> tuple[User, ...]:
        roles = (HUB, MASTER, READER, *map(node_role, sorted(self._nodes)))
        return tuple(User(self._credentials.public_key(role), permit(role)) for role in roles)

    async def _provision(self, connection: Connection) -> None:
        """Run before anybody hears that the connection is back: memory streams vanish with the server."""
        room = measure_room(self.settings.directory)
        first = self.settings.first_sequence
        touched = await provision(connection, scale=choose_scale(room), first_sequence=first)
        if self._watch is not None and EVENTS.name in touched:
            # The store vanished and the server restarted before the watch saw it.
            self._on_store_lost()

    async def stop(self) -> None:
        """Go down in the order of the module's docstring; safe to call twice."""
        if self._watch is not None and await self._watch.is_hung(_HUNG_AFTER):
            log.warning("nats-server hangs while it is to stop", pid=self.server.pid)
            await self._watch.stop()
            await self.server.kill()
        self._watch = None
        await self._stack.aclose()
        self._bus = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
