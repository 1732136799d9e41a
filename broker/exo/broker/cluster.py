"""`Cluster`: this node's place among the others, and its one bus, wherever the hub is.

Made by `ops/up.py` around everything else. One loop looks at what the peers say, asks `arbitration.decide`,
and performs the answer: follow a hub, become it, hand it over. The bus is the same object for life and is
moved when the hub moves. Never writes an event: that is the services' part, through `Standby`.

Order of stopping: the node says that it is going to, and becomes hub no more; its services go; the hub
names its successor and waits until it serves, or until those who stop too have gone; the bus closes;
the server stops; the cluster port closes last, so that the others hear all of it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from exo.broker.arbitration import (
    Decision,
    Follow,
    Keep,
    Resume,
    Serve,
    View,
    Wait,
    Yield,
    choose_successor,
    decide,
    is_serving,
)
from exo.broker.cancellation import is_cancelled
from exo.broker.cluster_report import ClusterReport, make_report
from exo.broker.credentials import Credentials
from exo.broker.errors import BrokerError, BusUnavailableError
from exo.broker.findings import (
    STORE_DISK_FULL,
    STORE_REMOVED,
    find_in_peers,
    find_other_versions,
    hub_cannot_start,
    hub_unreachable,
)
from exo.broker.hello import Hello, Role
from exo.broker.hub_watch import HubWatch
from exo.broker.listeners import Listeners
from exo.broker.mover import Mover
from exo.broker.nats_bus import NatsBus
from exo.broker.office import OfficeSettings
from exo.broker.peering import Peer, PeersReport, PeersSettings
from exo.broker.peers import Peers
from exo.broker.pulse import watch_sleep
from exo.broker.sessions import Session
from exo.broker.situation import Situation, choose_grace
from exo.broker.standby import Standby
from exo.streams.findings import NodeFinding
from exo.streams.ids import NodeId, SessionId

log = structlog.get_logger(__name__)

BUSY: Final = 0.1
"""Seconds between two looks while there is no hub; each change wakes the loop at once anyway."""

CALM: Final = 0.5
ALONE: Final = 2.0
"""The same as a hub that knows of nobody else: whatever happens then wakes the loop."""

HANDOVER: Final = 3.0
"""Seconds that a hub which leaves waits for its successor, or for followers that leave too."""

RETRY: Final = 1.0
"""Seconds between two attempts to reach the same hub; each tries all of its addresses."""

UNFIT: Final = 5.0
"""Seconds before a node whose server did not start tries again; others go first meanwhile."""

NATS_OFFSET: Final = -1
"""From the cluster port to the one that a hub tries first for NATS: above it lies the API's."""

NO_SESSION: Final = SessionId("")
NOBODY: Final = NodeId("")


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`directory` holds the sessions' stores, keys, and the address for other processes. `nats_port` 0 picks."""

    directory: Path
    peers: PeersSettings
    local: bool = False
    nats_port: int = 0
    binary: Path | None = None
    worker: bool = True
    fingerprint: str = ""


class Cluster:
    """The cluster as one node sees it: `start`, then `bus`, then `stop`."""

    def __init__(self, settings: ClusterSettings, *, credentials: Credentials) -> None:
        self.settings = settings
        self._node = settings.peers.node
        office = OfficeSettings(
            directory=settings.directory,
            node=self._node,
            cluster=settings.peers.cluster,
            local=settings.local,
            port=settings.nats_port,
            binary=settings.binary,
        )
        self._mover = Mover(office, credentials=credentials, on_store_lost=self._lose_store)
        self.bus: NatsBus = self._mover.bus
        self.peers = Peers(settings.peers, credentials=credentials, hello=self._make_hello, admit=self._admit)
        self._situation = Situation(now=time.monotonic())
        self._watch = HubWatch(self.bus.connection, self.peers, self._situation, on_new_session=self._tell_moved)
        self._standby: Standby | None = None
        self._started_at = time.time_ns() // 1_000_000
        self._listeners = Listeners[()]("moves of the hub")
        self._faults: dict[str, NodeFinding] = {}
        self._failure: BrokerError | None = None
        self._attached, self._wake = asyncio.Event(), asyncio.Event()
        self._step_lock = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._unfit_until = self._follow_after = 0.0
        self._is_store_lost = False

    # What others read.

    @property
    def role(self) -> Role:
        return self._situation.role

    @property
    def is_hub(self) -> bool:
        return self._situation.role == "hub"

    @property
    def hub(self) -> NodeId:
        """Whose server the bus is connected to; empty while there is none."""
        return self._situation.hub if self.role in {"hub", "following"} else NOBODY

    @property
    def session(self) -> SessionId:
        """The session that the hub serves."""
        return self._situation.session

    @property
    def server_pid(self) -> int | None:
        """The process of nats-server, if it runs here."""
        hub = self._mover.office.hub
        return hub.server.pid if hub is not None else None

    def gone(self) -> dict[NodeId, float]:
        """Give the peers whose process is gone, and for how many seconds that has been certain."""
        return self.peers.gone()

    def unreached(self) -> set[NodeId]:
        """Give the known peers that are not heard."""
        return self.peers.known().keys() - self.peers.reached().keys()

    def on_move(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener()` when the bus serves another hub or session; gives a function that ends it."""
        return self._listeners.add(listener)

    async def open_master_bus(self) -> NatsBus:
        """Give a connection to the present hub in the role master, which is closed when the hub moves.

        `BusUnavailableError` when there is no hub.
        """
        if not self.hub:
            raise BusUnavailableError(f"there is no hub: {self._situation.why}")
        return await self._mover.open_master_bus()

    def explain(self) -> str:
        """Say in half a sentence who is hub, or who was and what is happening."""
        return self._situation.why

    def explain_full(self) -> str:
        """Say why the hub's store takes nothing new, empty when it does."""
        peer = self.peers.reached().get(self.hub)
        return peer.hello.full if peer is not None else self._find_full()

    def _find_full(self) -> str:
        hub = self._mover.office.hub
        trouble = hub.watch.trouble if hub is not None and hub.watch is not None else None
        return trouble.message if trouble is not None and trouble.code == STORE_DISK_FULL else ""

    def report(self) -> ClusterReport:
        """Give what this node knows of the cluster."""
        peers, known = self.peers.report(), self.peers.known()
        return make_report(
            self._make_hello(),
            peers,
            settings=self.settings.peers,
            closed=self._mover.credentials.closed,
            why=self._situation.why,
            known=known.values(),
            reached=self.peers.reached().keys(),
            findings=tuple(self._list_findings(peers, alone=not known)),
        )

    def _list_findings(self, peers: PeersReport, *, alone: bool) -> Iterator[NodeFinding]:
        yield from self._faults.values()
        hub = self._mover.office.hub
        if hub is not None and hub.watch is not None and hub.watch.trouble is not None:
            yield hub.watch.trouble
        addresses = () if self.settings.local else self.peers.addresses
        yield from find_other_versions(
            self.settings.peers.version, (one.hello for one in self.peers.reached().values())
        )
        closed = self._mover.credentials.closed
        yield from find_in_peers(peers, self.settings.peers, alone=alone, closed=closed, addresses=addresses)

    # Life.

    async def start(self, standby: Standby) -> None:
        """Find a hub or become it; returns once the bus is connected, raises when this node is alone and cannot."""
        self._standby = standby
        await self._mover.prepare()
        await self.peers.start()
        self._situation.begin(now=time.monotonic())
        self.peers.on_change(self._wake.set)
        self.bus.on_connection_change(lambda _connected: self._wake.set())
        self._tasks = [
            asyncio.create_task(self._run(), name="cluster"),
            asyncio.create_task(watch_sleep(self._note_sleep), name="sleep watch"),
        ]
        try:
            await self._wait_attached()
        except BaseException:
            await self.stop()
            raise

    async def _wait_attached(self) -> None:
        await self._attached.wait()
        if self._failure is not None:
            raise self._failure

    def begin_leaving(self) -> None:
        """Say that this node is about to stop: it serves on as hub, but becomes it no more. `stop` must follow."""
        self._situation.begin_leaving()
        if self._attached.is_set():
            self.peers.announce()
        self._wake.set()

    async def stop(self) -> None:
        """Leave in the order of the module's docstring; safe to call twice."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._watch.stop(), return_exceptions=True)
        handed_over = await self._hand_over()
        await self._mover.stop(archive=handed_over)
        await self.peers.stop()

    async def rekey(self, credentials: Credentials) -> None:
        """Use other keys from now on, everywhere; those who do not have them stay outside.

        A hub starts its server again on the same store, a follower connects anew.
        """
        async with self._step_lock:
            was_hub = self.is_hub
            await self._mover.rekey(credentials)
            await self.peers.rekey(credentials)
            if was_hub or self.role == "following":
                self._situation.lose(since=time.monotonic())
            if was_hub:
                # Should it fail, the loop goes on as after any other loss.
                session = await self._mover.resume(self._get_standby(), preferred_port=self._preferred_port)
                self._take_office(session)
        self._wake.set()

    async def _hand_over(self) -> bool:
        """Tell that we leave; a hub waits until its successor serves. Tells whether it does."""
        if not self.is_hub:
            self._leave(NOBODY)
            return False
        self._name_successor()
        deadline = time.monotonic() + HANDOVER
        while time.monotonic() < deadline and (self._situation.hub or self._list_followers()):
            if any(is_serving(peer.hello) for peer in self.peers.reached().values()):
                return True
            if self._situation.hub not in {peer.hello.node for peer in self._list_connected() if peer.hello.stands}:
                # It is stopping too, or gone; nobody is left when all stop at once.
                self._name_successor()
            await self._pause(BUSY)
        if self._situation.hub:
            log.warning("the successor did not take over in time", successor=self._situation.hub)
        return False

    def _name_successor(self) -> None:
        successor = choose_successor(peer.hello for peer in self._list_followers())
        if successor != NOBODY:
            log.info("handing over to another hub", successor=successor)
        self._leave(successor)

    def _leave(self, successor: NodeId) -> None:
        self._situation.leave(successor)
        if self._attached.is_set():
            self.peers.announce()

    # The loop.

    async def _run(self) -> None:
        while True:
            try:
                async with self._step_lock:
                    await self._step()
            except (BrokerError, OSError) as error:
                self._fail(error)
            except Exception:
                log.exception("a step of the cluster failed")
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                log.exception("a cancellation that nobody asked for came out of a step of the cluster")
            await self._pause(self._choose_pause())

    def _choose_pause(self) -> float:
        if self._situation.is_alone:
            return BUSY
        return CALM if self.peers.known() or not self.is_hub else ALONE

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _step(self) -> None:
        now = time.monotonic()
        if self._is_store_lost and self._situation.stands:
            await self._renew()
            return
        self._watch.look(now)
        decision = decide(self._look(now))
        if decision.why != self._situation.why:
            log.info("cluster", decision=type(decision).__name__.lower(), why=decision.why)
        self._situation.note(decision, now=now)
        await self._perform(decision)

    def _look(self, now: float) -> View:
        known = self.peers.known()
        last = known.get(self._situation.last_hub)
        return self._situation.view(
            self._make_hello(),
            tuple(peer.hello for peer in self._list_connected()),
            now=now,
            grace=choose_grace(self.settings.peers, self.peers.report()) if self.role == "starting" else 0.0,
            hub_closed=last is not None and not last.connected,
            has_peers=bool(known),
            stored=self._mover.stored,
        )

    async def _perform(self, decision: Decision) -> None:
        now = time.monotonic()
        match decision:
            case Follow() | Yield() if now < self._follow_after:
                return
            case Follow(hub=hub):
                await self._follow(hub)
            case Yield(hub=hub):
                await self._follow(hub)
                # Our followers read in our Hello whom we follow, and need the server no more.
                await self._mover.office.end(archive=True)
            case Serve() if now >= self._unfit_until:
                await self._serve()
            case Resume() if now >= self._unfit_until:
                await self._serve(resume=True)
            case Wait() if self.is_hub:
                self.bus.connection.hold()
            case Keep() if self.is_hub:
                await self._mover.stay()
            case _:
                return

    # Performing.

    async def _follow(self, hub: Hello) -> None:
        """Move the bus, or leave everything as it is and raise."""
        peer = self.peers.reached().get(hub.node)
        if peer is None:
            raise BusUnavailableError(f"{hub.name} is not reached any more")
        try:
            await self._mover.follow(peer)
        except BusUnavailableError as error:
            now = time.monotonic()
            self._follow_after = now + RETRY
            self._situation.miss(hub.node, now=now)
            self._faults["hub"] = hub_unreachable(hub.name, error)
            raise
        self._situation.follow(peer.hello)
        self._settle()

    async def _serve(self, *, resume: bool = False) -> None:
        enter = self._mover.resume if resume else self._mover.serve
        try:
            session = await enter(self._get_standby(), preferred_port=self._preferred_port)
        except BrokerError as error:
            self._unfit_until = time.monotonic() + UNFIT
            self._faults["hub"] = hub_cannot_start(error)
            raise
        self._take_office(session)

    async def _renew(self) -> None:
        self._is_store_lost = False
        self._faults["store"] = STORE_REMOVED
        try:
            session = await self._mover.renew(self._get_standby(), preferred_port=self._preferred_port)
        except BaseException:
            self._is_store_lost = True
            raise
        self._take_office(session)

    def _take_office(self, session: Session) -> None:
        hub = self._mover.office.hub
        assert hub is not None
        addresses = tuple(f"{one.rpartition(':')[0]}:{hub.port}" for one in self.peers.addresses)
        self._situation.serve(self._node, session=session.session, since=session.since, addresses=addresses)
        self._settle()

    def _settle(self) -> None:
        self._faults.pop("hub", None)
        self.peers.announce()
        self._attached.set()
        self._tell_moved()

    def _tell_moved(self) -> None:
        log.info("the bus is connected to a hub", hub=self.hub, session=self.session)
        self._listeners.tell()

    def _fail(self, error: BrokerError | OSError) -> None:
        if not self._attached.is_set() and isinstance(error, BrokerError) and not self.peers.reached():
            # Nobody else can become hub: the person who starts this node hears it from `start`.
            self._failure = error
            self._attached.set()
        else:
            log.warning("cluster step failed", reason=str(error))

    # What others call.

    async def _admit(self, hello: Hello) -> None:
        heard = {node: peer.heard_at for node, peer in self.peers.known().items()}
        await self._mover.admit(hello.node, heard=heard)

    def _make_hello(self) -> Hello:
        peers, situation = self.settings.peers, self._situation
        assert self._standby is not None
        return Hello(
            node=self._node,
            boot=peers.boot,
            name=peers.name,
            version=peers.version,
            started_at=self._started_at,
            role=situation.role,
            position=self._standby.position,
            hub=situation.hub,
            hub_since=situation.since,
            hub_session=situation.session if situation.hub else NO_SESSION,
            hub_addresses=situation.addresses if situation.hub else (),
            present=len(self._list_followers()) + 1 if situation.role == "hub" else 0,
            full=self._find_full() if situation.role == "hub" else "",
            stands=situation.stands,
            worker=self.settings.worker,
            fingerprint=self.settings.fingerprint,
        )

    def _list_connected(self) -> list[Peer]:
        """What a peer said before it hung up is worth nothing: most likely its process is gone."""
        return [peer for peer in self.peers.reached().values() if peer.connected]

    def _list_followers(self) -> list[Peer]:
        return [peer for peer in self._list_connected() if peer.hello.hub == self._node]

    def _note_sleep(self) -> None:
        log.warning("this machine was asleep or its clock was set")
        self._situation.wake(now=time.monotonic())
        if self.is_hub and self.peers.known():
            # A successor may serve by now: nobody gets through until the others were asked.
            self.bus.connection.hold()
        self._wake.set()

    def _lose_store(self) -> None:
        self._is_store_lost = True
        self._wake.set()

    @property
    def _preferred_port(self) -> int:
        return 0 if self.settings.local else self.peers.port + NATS_OFFSET

    def _get_standby(self) -> Standby:
        assert self._standby is not None
        return self._standby
