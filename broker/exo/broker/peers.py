"""The other nodes: found, dialled, proven, and listened to. Made and read by `cluster.py`.

Every address that anybody suggests is dialled until a member answers there. Of two nodes that dial each
other the one with the lower id decides which connection stays, so there is exactly one and both agree.
What peers say is kept and told; what it means for the cluster is decided in `arbitration.py`.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from msgspec.structs import replace

from exo.broker.address_book import AddressBook
from exo.broker.addresses import Address, AddressError, list_own_addresses, parse_address
from exo.broker.certificates import make_certificate
from exo.broker.cluster_frames import FrameError, Greeting, Introduction, Refused, Saying, encode_frame
from exo.broker.cluster_port import ClusterPort
from exo.broker.cluster_stream import Stream
from exo.broker.credentials import Credentials
from exo.broker.dialing import Dialler
from exo.broker.discovery import Discovery
from exo.broker.greeting import Party, RefusedError, refuse
from exo.broker.hello import HEARTBEAT, Hello, Member
from exo.broker.link import PATIENCE, Link, NotAdmittedError
from exo.broker.peer_notes import Notes
from exo.broker.peer_table import PeerTable
from exo.broker.peering import NOBODY, LinkSample, Peer, PeersReport, PeersSettings, Source
from exo.broker.probes import answer
from exo.broker.remembered import MOST_ADDRESSES_KEPT, read_remembered, write_remembered
from exo.broker.survey import measure_addresses
from exo.streams.ids import NodeId

log = structlog.get_logger(__name__)

ANNOUNCE_DELAY: Final = 0.01
"""Seconds in which several changes become one Hello."""

MOST_ADDRESSES: Final = 8
"""Of one member, in a Hello."""

ADDRESSES_AGE: Final = 5.0
"""Seconds after which this machine's own addresses are listed again."""


async def admit_all(hello: Hello) -> None:
    """Need nothing done before a peer is told more."""


class Peers:
    """All peers of this node, between `start` and `stop`."""

    def __init__(
        self,
        settings: PeersSettings,
        *,
        credentials: Credentials,
        hello: Callable[[], Hello],
        admit: Callable[[Hello], Awaitable[None]] = admit_all,
    ) -> None:
        self.settings = settings
        self._credentials, self._hello, self._admit = credentials, hello, admit
        self._notes = Notes()
        self._book = AddressBook()
        self._certificate = make_certificate(secrets.token_bytes(32), name="exo node")
        self._table = PeerTable(time.monotonic)
        self._port = ClusterPort(
            settings, certificate=self._certificate, party=self._party, serve=self._serve, notes=self._notes
        )
        self._dialler = Dialler(
            self._book,
            party=self._party,
            connected=self._table.links.keys,
            meet=self._meet,
            notes=self._notes,
        )
        self._discovery: Discovery | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._announcement: asyncio.TimerHandle | None = None
        self._remembered: list[str] = []
        self._own: tuple[float, tuple[str, ...]] = (0.0, ())

    # Life.

    @property
    def port(self) -> int:
        """Where the cluster port listens; 0 before `start`."""
        return self._port.port

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where our cluster port can be tried; part of every Hello, as are the members."""
        listed_at, own = self._own
        if not own or time.monotonic() - listed_at > ADDRESSES_AGE:
            own = list_own_addresses(self.port, host=self.settings.host)
            self._own = (time.monotonic(), own)
        return own

    async def start(self) -> None:
        """Listen, dial and look around; `PortBusyError` when a chosen port is taken."""
        await self._port.start()
        for address in self.settings.bootstrap:
            self.suggest(address, source="bootstrap")
        if self.settings.remembered is not None:
            self._remembered = read_remembered(self.settings.remembered)
            for address in self._remembered:
                self.suggest(address, source="remembered")
        for work, name in ((self._dialler.run(), "dial peers"), (self._beat(), "heartbeat to peers")):
            self._tasks.append(asyncio.create_task(work, name=name))
        if self.settings.discovery:
            self._discovery = Discovery(
                self.settings,
                port=self.port,
                suggest=self._suggest_found,
                stranger=self._notes.meet_stranger,
                stranger_left=self._notes.miss_stranger,
            )
            await self._discovery.start()

    async def stop(self) -> None:
        """Close everything; safe to call twice."""
        self._table.clear()
        await self._port.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._discovery is not None:
            await self._discovery.stop()
        if self._announcement is not None:
            self._announcement.cancel()

    async def rekey(self, credentials: Credentials) -> None:
        """Use another key from now on: everybody has to prove again that they have it."""
        self._credentials = credentials
        for link in tuple(self._table.links.values()):
            link.stream.abort()
        self._book.hurry()
        self._dialler.wake()

    # What others read.

    def reached(self) -> dict[NodeId, Peer]:
        """Give the peers heard within `SILENCE`."""
        return self._table.reached()

    def known(self) -> dict[NodeId, Peer]:
        """Give also the peers that are not reached any more."""
        return self._table.known()

    def gone(self) -> dict[NodeId, float]:
        """Give the peers whose process is gone, and for how many seconds that has been certain.

        Their connection broke and their machine has refused to make another since: silence proves nothing.
        """
        now, found = time.monotonic(), dict[NodeId, float]()
        for node, peer in self._table.known().items():
            is_own = peer.address in peer.hello.addresses
            since = self._book.find_refusal(peer.address, after=peer.heard_at, is_own=is_own)
            if since is not None and not peer.connected:
                found[node] = now - since
        return found

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener()` when a peer came, went, or said something new; gives a function that ends it."""
        return self._table.on_change(listener)

    def report(self) -> PeersReport:
        """Give everything that happened on the way to other nodes, but for what is over."""
        reached = self.reached().keys()
        return PeersReport(
            port=self.port,
            discovery=Discovery.off() if self._discovery is None else self._discovery.state,
            attempts=self._book.report(reached=reached),
            refusals=self._notes.list_refusals(reached),
            strangers=tuple(one for one in self._notes.strangers.values() if one.node not in reached),
            bad_addresses=tuple(self._notes.bad_addresses.values()),
            unadmitted=tuple(self._notes.unadmitted.values()),
            counters=dict(self._notes.counters),
        )

    # Addresses.

    def suggest(self, address: str, *, source: Source, node: NodeId = NOBODY) -> None:
        """Have an address dialled until a member answers there; one that cannot be read is reported."""
        try:
            parsed = parse_address(address)
        except AddressError as error:
            self._notes.reject_address(address, str(error), source=source)
            return
        if str(parsed) not in self.addresses and self._book.suggest(parsed, source=source, node=node):
            self._dialler.wake()

    def _suggest_found(self, address: str, node: NodeId) -> None:
        self.suggest(address, source="zeroconf", node=node)

    def _suggest_members(self, hello: Hello) -> None:
        for address in hello.addresses[:MOST_ADDRESSES]:
            self.suggest(address, source="greeting", node=hello.node)
        for member in hello.members:
            if member.node != self.settings.node:
                for address in member.addresses[:MOST_ADDRESSES]:
                    self.suggest(address, source="member", node=member.node)

    def _remember(self, address: str) -> None:
        if self.settings.remembered is not None and address not in self._remembered[:1]:
            self._remembered = [address, *(one for one in self._remembered if one != address)][:MOST_ADDRESSES_KEPT]
            write_remembered(self.settings.remembered, self._remembered)

    # Connections.

    def _party(self) -> Party:
        fingerprint = self._certificate.fingerprint
        return Party(settings=self.settings, credentials=self._credentials, port=self.port, fingerprint=fingerprint)

    async def _serve(self, stream: Stream, greeting: Greeting) -> None:
        """Serve a member that dialled us."""
        match greeting.purpose:
            case "peer":
                address = Address(stream.remote, greeting.port)
                self.suggest(str(address), source="greeting", node=greeting.node)
                await self._meet(stream, greeting, address)
            case "measure":
                await answer(stream)
            case other:
                raise await refuse(stream, "malformed", f"no such purpose: {other}", greeting=greeting)

    async def _meet(self, stream: Stream, greeting: Greeting, address: Address) -> None:
        """Own a proven connection until it ends."""
        link = Link(
            stream,
            greeting,
            # Where its name led to: the bus and the peers we tell of it need no DNS then.
            address=str(Address(stream.remote, address.port)),
            admit=self._admit,
            say=self._encode_hello,
            on_hello=self._hear,
            on_unknown=self._skip,
            on_failure=self._fail_admission,
            on_settled=self._settle,
        )
        we_decide = self.settings.node < greeting.node
        introduction = None if we_decide else await _await_introduction(stream, greeting)
        verdict = self._table.claim(link, we_decide=we_decide)
        if verdict is not None:
            raise await refuse(stream, *verdict, greeting=greeting)
        try:
            await stream.send(Introduction(self._make_hello()))
            await link.run(introduction)
        except (OSError, EOFError) as error:
            log.debug("a connection to a peer ended", name=greeting.name, node=greeting.node, reason=str(error))
            if not link.is_settled and self._table.links.get(greeting.node, link) is link:
                text = f"{greeting.name} was met, but the connection ended before both had let the other in"
                raise NotAdmittedError(text) from error
        finally:
            if self._table.drop(link):
                # Who never let us in is dialled after a pause that grows.
                if link.is_settled:
                    self._book.hurry(greeting.node)
                self._dialler.wake()
                self.announce()

    def _hear(self, link: Link, hello: Hello) -> None:
        earlier = link.hello
        self._table.hear(link, hello)
        if earlier is None or (earlier.addresses, earlier.members) != (hello.addresses, hello.members):
            self._suggest_members(hello)
        if earlier is None:
            self._remember(link.address)
            self.announce()

    def _settle(self, link: Link) -> None:
        self._book.settle(link.greeting.node)
        self._notes.forgive(link.greeting.node, address=link.address)

    def _fail_admission(self, link: Link, error: Exception) -> None:
        self._notes.fail_admission(link.greeting, error)

    def _skip(self, link: Link, kind: str) -> None:
        self._notes.skip_frame(kind, link.greeting)

    # Hellos.

    def announce(self) -> None:
        """Send our Hello to everybody now."""
        if self._announcement is None:
            self._announcement = asyncio.get_running_loop().call_later(ANNOUNCE_DELAY, self._say_to_all)

    def _say_to_all(self) -> None:
        self._announcement = None
        if self._table.links:
            frame = self._encode_hello()
            for link in self._table.links.values():
                link.say(frame)

    async def _beat(self) -> None:
        while True:
            try:
                self._table.tick()
                self._say_to_all()
            except Exception:
                log.exception("a heartbeat to peers failed")
            await asyncio.sleep(HEARTBEAT)

    def _encode_hello(self) -> bytes:
        return encode_frame(Saying(self._make_hello()))

    def _make_hello(self) -> Hello:
        members = tuple(
            Member(node, tuple(dict.fromkeys((peer.address, *peer.hello.addresses)))[:MOST_ADDRESSES])
            for node, peer in self._table.reached().items()
        )
        return replace(self._hello(), addresses=self.addresses[:MOST_ADDRESSES], members=members)

    async def measure(self, node: NodeId, *, bandwidth: bool = True) -> list[LinkSample]:
        """Give latency and, if asked, bandwidth of each address of a peer that answers; none of an unknown peer."""
        peer = self.known().get(node)
        return [] if peer is None else await measure_addresses(self._dialler, peer, bandwidth=bandwidth)


async def _await_introduction(stream: Stream, greeting: Greeting) -> Hello:
    """Wait for the other end's decision whether this connection stays."""
    try:
        async with asyncio.timeout(PATIENCE):
            frame = await stream.read()
    except TimeoutError as error:
        text = str(error) or f"greeted, but {greeting.name} did not introduce itself within {PATIENCE:g} s"
        raise TimeoutError(text) from error
    match frame:
        case Introduction(hello):
            return hello
        case Refused(code, reason):
            raise RefusedError(code, reason, by_us=False, greeting=greeting)
        case _:
            raise FrameError(f"expected an introduction, got {type(frame).__name__}")
