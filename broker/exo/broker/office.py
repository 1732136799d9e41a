"""The office of the hub, while this node holds it: its session's store, its server, and who was given a key to it.

Used by `cluster.py`, which decides when. Each session has a store of its own; a store is complete once its
session was inaugurated, and an incomplete one never survives.
"""

import asyncio
import socket
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from exo.broker.certificates import TlsFiles
from exo.broker.config import LOOPBACK
from exo.broker.credentials import Credentials
from exo.broker.errors import NotFoundError, ServerStartError
from exo.broker.hub import Hub, HubSettings
from exo.broker.sessions import Session, SessionStores
from exo.broker.standby import Standby
from exo.streams.ids import NodeId, SessionId, new_session_id
from exo.streams.layout import EVENTS
from exo.streams.subjects import EPOCH

log = structlog.get_logger(__name__)

ALL_INTERFACES: Final = "0.0.0.0"  # noqa: S104 - beyond loopback clients and server prove themselves by TLS and nkey


class OfficeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`port` 0 takes the preferred port of the terms if it is free, else any."""

    directory: Path
    node: NodeId
    cluster: str
    local: bool
    port: int = 0
    binary: Path | None = None


class Terms(NamedTuple):
    """On what terms a hub serves: whose keys, which nodes may connect, and the port others will guess."""

    credentials: Credentials
    tls: TlsFiles | None
    nodes: tuple[NodeId, ...]
    preferred_port: int


class Office:
    """Holds at most one hub. `on_ready` is called whenever its server has started."""

    def __init__(
        self, settings: OfficeSettings, *, on_ready: Callable[[Hub], None], on_store_lost: Callable[[], None]
    ) -> None:
        self.settings = settings
        self.stores = SessionStores(settings.directory, cluster=settings.cluster)
        self.hub: Hub | None = None
        self.session: Session | None = None
        """Of the hub, or the one that could be resumed."""
        self._on_ready = on_ready
        self._on_store_lost = on_store_lost
        self._last_port = 0

    async def look(self) -> None:
        """Find out what an earlier process left."""
        self.session = await self.stores.find()

    async def begin(self, standby: Standby, terms: Terms) -> None:
        """Serve a new session that begins from State."""
        session, first_sequence = self.stores.create(new_session_id()), standby.position.applied + 1
        try:
            hub = await self._start(session, terms, first_sequence=first_sequence)
            await standby.inaugurate(hub.bus, session.session)
            self.session = self.stores.finish(session)
        except BaseException:
            await self._stop_hub()
            self.stores.discard(session.session)
            raise
        self.stores.archive_all_but(session.session)
        log.info("this node is the hub", session=session.session, first_sequence=first_sequence)

    async def resume(self, standby: Standby, terms: Terms) -> None:
        """Serve the stored session again; `NotFoundError` when its store has less than State knows of it."""
        session = self.session
        assert session is not None
        try:
            hub = await self._start(session, terms, first_sequence=1)
            await _check_store(hub, session, standby=standby)
        except NotFoundError:
            await self._stop_hub()
            self.stores.archive(session.session)
            self.session = None
            raise
        except BaseException:
            await self._stop_hub()
            raise
        log.info("this node is the hub again", session=session.session)

    async def admit(self, nodes: Iterable[NodeId], *, departed: Collection[NodeId] = ()) -> None:
        """Let nodes in, if there is a hub here."""
        if self.hub is not None:
            await self.hub.admit(nodes, departed=departed)

    async def end(self, *, archive: bool) -> None:
        """Stop serving; an archived session is not resumed."""
        await self._stop_hub()
        if archive and self.session is not None:
            self.stores.archive(self.session.session)
            self.session = None

    def forget(self, *, but: SessionId) -> None:
        """Put aside what is not of the session that is followed now."""
        self.stores.archive_all_but(but)
        if self.session is not None and self.session.session != but:
            self.session = None

    async def lose_store(self) -> None:
        """Stop serving a session whose store is gone."""
        await self._stop_hub()
        if self.session is not None:
            self.stores.discard(self.session.session)
            self.session = None

    async def _start(self, session: Session, terms: Terms, *, first_sequence: int) -> Hub:
        settings = HubSettings(
            directory=self.stores.directory_of(session.session),
            name=self.settings.node,
            host=LOOPBACK if self.settings.local else ALL_INTERFACES,
            port=self.settings.port or self._choose_port(terms.preferred_port),
            binary=self.settings.binary,
            first_sequence=first_sequence,
            tls=terms.tls,
            nodes=terms.nodes,
        )
        try:
            await self._start_hub(settings, terms.credentials)
        except ServerStartError:
            if self.settings.port or not settings.port:
                raise
            # Somebody took the port between our look and the server's.
            await self._start_hub(msgspec.structs.replace(settings, port=0), terms.credentials)
        assert self.hub is not None
        self._last_port = self.hub.port
        return self.hub

    async def _start_hub(self, settings: HubSettings, credentials: Credentials) -> None:
        hub = Hub(settings, credentials=credentials, on_ready=self._on_ready, on_store_lost=self._on_store_lost)
        await hub.start()
        self.hub = hub

    async def _stop_hub(self) -> None:
        hub, self.hub = self.hub, None
        if hub is not None:
            # Half a stop would leave a server on a store that we are about to move.
            await asyncio.shield(hub.stop())

    def _choose_port(self, preferred: int) -> int:
        """Where clients looked for us last is where they look again."""
        return next((port for port in (self._last_port, preferred) if port and _is_free(port)), 0)


async def _check_store(hub: Hub, session: Session, *, standby: Standby) -> None:
    """A damaged store silently ends early (measured): then State is all that is left of the session."""
    info = await hub.bus.stream_info(EVENTS.name)
    position = standby.position
    if position.session == session.session and info.last_sequence < position.applied:
        raise NotFoundError(f"the stored log ends at {info.last_sequence}, State is at {position.applied}")
    if await hub.bus.get_last(EVENTS.name, EPOCH) is None:
        raise NotFoundError("the stored log has no epoch record")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
