"""Moving this node's bus between hubs, its own server included. Used by `cluster.py`, which decides when.

After each move the connections in the role master are closed, the address for other processes is written,
and stores of sessions that the cluster has left behind are put aside.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from exo.broker.certificates import TlsFiles
from exo.broker.context import make_address, remove_address, write_address
from exo.broker.credentials import Credentials
from exo.broker.errors import BusUnavailableError, NotFoundError
from exo.broker.hub import Hub
from exo.broker.nats_bus import NatsBus
from exo.broker.office import Office, OfficeSettings, Terms
from exo.broker.peering import Peer
from exo.broker.permissions import MASTER, inbox_of, node_role
from exo.broker.policy import ConnectionSettings
from exo.broker.provision import wait_provisioned
from exo.broker.reaching import list_targets, reach
from exo.broker.sessions import Session
from exo.broker.standby import Standby
from exo.streams.ids import NodeId, SessionId

log = structlog.get_logger(__name__)

FORGOTTEN: Final = 3600.0
"""Seconds after which a node that is not heard any more loses its user on the message server."""


class Mover:
    """The bus, the office, and the keys to both."""

    def __init__(
        self, settings: OfficeSettings, *, credentials: Credentials, on_store_lost: Callable[[], None]
    ) -> None:
        self.settings = settings
        self.credentials = credentials
        self.office = Office(settings, on_ready=self._write_hub_address, on_store_lost=on_store_lost)
        self._tls: TlsFiles | None = None
        self._met: dict[NodeId, float] = {}
        """When each other node was met last, in monotonic seconds."""
        self._masters: list[NatsBus] = []
        self.bus = NatsBus(
            self._connection_settings(node_role(settings.node), name=settings.node), restore=wait_provisioned
        )

    async def prepare(self) -> None:
        """Write the keys and look what an earlier process left."""
        self.settings.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write_tls()
        await self.office.look()

    @property
    def stored(self) -> SessionId:
        """The session whose store lies here."""
        return self.office.session.session if self.office.session is not None else SessionId("")

    async def admit(self, node: NodeId, *, heard: Mapping[NodeId, float]) -> None:
        """Let a node in, now or once there is a hub here. `heard` is when each peer was heard last.

        Who was not for `FORGOTTEN` is let in no more until it is met again.
        """
        now = time.monotonic()
        self._met[node] = now
        departed = [one for one, met in self._met.items() if now - max(met, heard.get(one, met)) > FORGOTTEN]
        for one in departed:
            del self._met[one]
        await self.office.admit((node,), departed=departed)

    @property
    def _nodes(self) -> tuple[NodeId, ...]:
        return tuple(sorted({self.settings.node, *self._met}))

    # Where the bus goes.

    async def follow(self, peer: Peer) -> None:
        """Go over to another node's server; an own one is still there for those who have not heard yet."""
        settings = self._connection_settings(node_role(self.settings.node), name=self.settings.node)
        await reach(self.bus.connection, list_targets(peer), settings=settings)
        await self._close_masters()
        if self.office.hub is None:
            self.office.forget(but=peer.hello.hub_session)
        self._write_address(self.bus.connection.settings.url)

    async def serve(self, standby: Standby, *, preferred_port: int) -> Session:
        """Begin a session and go there."""
        # State stands still from here on: it is to be that of the session's beginning.
        self.bus.connection.hold()
        await self._close_masters()
        try:
            await self.office.begin(standby, self._make_terms(preferred_port))
            return await self._go_home()
        except BaseException:
            await self.office.end(archive=True)
            self.bus.connection.release()
            raise

    async def resume(self, standby: Standby, *, preferred_port: int) -> Session:
        """Go on with the stored session, or begin another if its store has less than State."""
        try:
            await self.office.resume(standby, self._make_terms(preferred_port))
        except NotFoundError as error:
            log.warning("the stored session cannot be resumed; a new one begins from State", reason=str(error))
            return await self.serve(standby, preferred_port=preferred_port)
        try:
            return await self._go_home()
        except BaseException:
            await self.office.end(archive=False)
            raise

    async def renew(self, standby: Standby, *, preferred_port: int) -> Session:
        """Begin a session because the store of ours was removed."""
        self.bus.connection.hold()
        await self.office.lose_store()
        return await self.serve(standby, preferred_port=preferred_port)

    async def stay(self) -> None:
        """As a hub: be connected to the own server, whatever was tried meanwhile."""
        hub = self.office.hub
        if hub is not None and self.bus.connection.settings.url != hub.url:
            await self._go_home()
        self.bus.connection.release()

    async def rekey(self, credentials: Credentials) -> None:
        """Use other keys from now on; the bus is connected to nobody until the next move."""
        self.credentials = credentials
        self._write_tls()
        await self.bus.connection.leave()
        await self._close_masters()
        await self.office.end(archive=False)

    async def stop(self, *, archive: bool) -> None:
        """Close the bus, then the server."""
        await self._close_masters()
        await self.bus.close()
        await self.office.end(archive=archive)
        remove_address(self.settings.directory)

    async def _go_home(self) -> Session:
        hub, session = self.office.hub, self.office.session
        assert hub is not None
        assert session is not None
        await hub.admit(self._nodes)
        settings = hub.connection_settings(node_role(self.settings.node), name=self.settings.node)
        await self.bus.connection.move(settings)
        await self._close_masters()
        return session

    # Connections.

    async def open_master_bus(self) -> NatsBus:
        """Give a connection to the server that the bus is connected to, in the role master."""
        present = self.bus.connection.settings.url
        if not self.bus.connected:
            raise BusUnavailableError("there is no hub to be master of")
        settings = msgspec.structs.replace(self._connection_settings(MASTER, name="master"), url=present)
        bus = NatsBus(settings, restore=wait_provisioned)
        await bus.open()
        if present != self.bus.connection.settings.url:
            await bus.close()
            raise BusUnavailableError("the hub moved meanwhile")
        self._masters = [one for one in self._masters if not one.connection.closed]
        self._masters.append(bus)
        return bus

    async def _close_masters(self) -> None:
        masters, self._masters = self._masters, []
        for master in masters:
            await master.close()

    def _connection_settings(self, role: str, *, name: str) -> ConnectionSettings:
        return ConnectionSettings(
            url="", name=name, seed=self.credentials.seed(role), inbox=inbox_of(role), tls=self._tls
        )

    def _make_terms(self, preferred_port: int) -> Terms:
        return Terms(self.credentials, self._tls, self._nodes, preferred_port)

    def _write_tls(self) -> None:
        if not self.settings.local:
            self._tls = self.credentials.write_tls(self.settings.directory / "tls")

    def _write_hub_address(self, hub: Hub) -> None:
        self._write_address(hub.url, monitor_url=hub.server.monitor_url, pid=hub.server.pid)

    def _write_address(self, url: str, *, monitor_url: str = "", pid: int = 0) -> None:
        directory: Path = self.settings.directory
        address = make_address(
            url, credentials=self.credentials, directory=directory, tls=self._tls, monitor_url=monitor_url, pid=pid
        )
        write_address(directory, address)
