"""Cluster ports for a test: on loopback, on ports the system picks, found by address only unless asked."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from exo.broker.addresses import parse_address
from exo.broker.certificates import trusting_context
from exo.broker.cluster_stream import Stream, dial
from exo.broker.credentials import Credentials
from exo.broker.greeting import Party, greet_as_client
from exo.broker.hello import Hello, Position
from exo.broker.name_lookups import NameLookups
from exo.broker.peering import PeersSettings, RefusalCode
from exo.broker.peers import Peers, admit_all
from exo.streams.ids import BootId, NodeId
from support.nats import wait_until

HOST = "127.0.0.1"
OF_TOMORROW = b'\0\0\0\x16{"type":"of-tomorrow"}'
"""A frame of a type that this version does not know."""


def make_settings(
    node: str,
    *,
    bootstrap: tuple[str, ...] = (),
    cluster: str = "home",
    boot: str = "",
    port: int = 0,
    port_is_explicit: bool = False,
    discovery: bool = False,
    remembered: Path | None = None,
    host: str = HOST,
) -> PeersSettings:
    return PeersSettings(
        node=NodeId(node),
        boot=BootId(boot or f"boot-of-{node}"),
        name=f"the-{node}",
        cluster=cluster,
        version="1.0",
        host=host,
        port=port,
        port_is_explicit=port_is_explicit,
        bootstrap=bootstrap,
        discovery=discovery,
        remembered=remembered,
    )


def make_hello(settings: PeersSettings, *, applied: int = 0) -> Hello:
    return Hello(
        node=settings.node,
        boot=settings.boot,
        name=settings.name,
        version=settings.version,
        started_at=1,
        role="starting",
        position=Position(applied=applied),
    )


@asynccontextmanager
async def running_peers(
    settings: PeersSettings,
    *,
    secret: str = "",
    hello: Callable[[], Hello] | None = None,
    admit: Callable[[Hello], Awaitable[None]] = admit_all,
) -> AsyncGenerator[Peers]:
    """The cluster port of one node."""
    credentials = Credentials(settings.cluster, secret)
    peers = Peers(settings, credentials=credentials, hello=hello or (lambda: make_hello(settings)), admit=admit)
    await peers.start()
    try:
        yield peers
    finally:
        await peers.stop()


def address_of(peers: Peers) -> str:
    return f"{HOST}:{peers.port}"


@asynccontextmanager
async def greeted_stream(peers: Peers, settings: PeersSettings, *, purpose: str = "peer") -> AsyncGenerator[Stream]:
    """A member's connection whose further frames the test writes itself."""
    party = Party(settings=settings, credentials=Credentials(settings.cluster), port=1, fingerprint=b"")
    async with dial(parse_address(address_of(peers)), trusting_context(), lookups=NameLookups()) as stream:
        await greet_as_client(stream, party, purpose=purpose)
        yield stream


async def wait_met(peers: Peers, *nodes: NodeId) -> None:
    await wait_until(
        lambda: {node for node, peer in peers.reached().items() if peer.connected} == set(nodes),
        what=f"{peers.settings.node} reaches {nodes}",
    )


async def wait_refused(peers: Peers, code: RefusalCode, *, by_us: bool) -> str:
    def find() -> list[str]:
        return [one.name for one in peers.report().refusals if (one.code, one.by_us) == (code, by_us)]

    await wait_until(lambda: bool(find()), what=f"{peers.settings.node} has a refusal {code}")
    return find()[0]


async def wait_counted(peers: Peers, kind: str, *, times: int = 1) -> None:
    await wait_until(
        lambda: peers.report().counters.get(kind, 0) >= times, what=f"{kind} counted, not {peers.report().counters}"
    )
