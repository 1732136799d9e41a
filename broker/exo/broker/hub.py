"""The broker side of one node: lock the store, start nats-server, connect, provision - and all of it backwards.

Used by `ops/up.py` as an async context manager around everything else.

Order of stopping, each step needing the ones below it: whoever uses the bus stops first (leaving the
`async with`); the bus sends what is buffered and disconnects, so that the server has no client left
and its lame-duck mode ends at once; the server flushes and stops; then the lock is given back.
"""

from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import structlog

from exo.broker.config import ServerSettings, choose_scale
from exo.broker.connect import Connection
from exo.broker.context import Address, remove_address, write_address
from exo.broker.identity import Identity, load_identity
from exo.broker.nats_bus import NatsBus
from exo.broker.policy import ConnectionSettings
from exo.broker.provision import provision
from exo.broker.server import NatsServer
from exo.broker.store import StoreLock, measure_room

log = structlog.get_logger(__name__)


class HubSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`directory` holds all of the broker's files. `port` 0 lets the system pick. `binary` None searches.

    `first_sequence` is where EXO_EVENTS begins if it does not exist yet.
    """

    directory: Path
    name: str
    port: int = 0
    binary: Path | None = None
    first_sequence: int = 1


class Hub:
    """A running broker with its bus; use it as an async context manager."""

    def __init__(self, settings: HubSettings) -> None:
        self.settings = settings
        self.identity: Identity = load_identity(settings.directory)
        server_settings = ServerSettings(
            directory=settings.directory,
            name=settings.name,
            port=settings.port,
            users=(self.identity.public_key,),
        )
        self.server = NatsServer(server_settings, binary=settings.binary, on_ready=self._write_address)
        self._bus: NatsBus | None = None
        self._stack = AsyncExitStack()

    @property
    def bus(self) -> NatsBus:
        """The bus; only while the hub is up."""
        if self._bus is None:
            raise RuntimeError("the hub is not up")
        return self._bus

    async def start(self) -> None:
        """Come up or raise; nothing is left behind on failure."""
        async with AsyncExitStack() as stack:
            stack.enter_context(StoreLock(self.settings.directory))
            stack.callback(remove_address, self.settings.directory)
            await stack.enter_async_context(self.server)
            self._bus = await stack.enter_async_context(NatsBus(self._connection(), restore=self._provision))
            await self._provision(self._bus.connection)
            self._stack = stack.pop_all()

    def _connection(self) -> ConnectionSettings:
        return ConnectionSettings(url=self.server.url, name=self.settings.name, seed=self.identity.read_seed())

    async def _provision(self, connection: Connection) -> None:
        """Run before anybody hears that the connection is back: memory streams vanish with the server."""
        room = measure_room(self.settings.directory)
        await provision(connection, scale=choose_scale(room), first_sequence=self.settings.first_sequence)

    def _write_address(self) -> None:
        address = Address(
            url=self.server.url,
            monitor_url=self.server.monitor_url,
            seed_file=str(self.identity.seed_file),
            pid=self.server.pid,
        )
        write_address(self.settings.directory, address)

    async def stop(self) -> None:
        """Go down in the order of the module's docstring; safe to call twice."""
        await self._stack.aclose()
        self._bus = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
