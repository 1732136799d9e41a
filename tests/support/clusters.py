"""Several `Cluster`s in one process, each with a store, a cluster port and, when it is hub, a real nats-server."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path

import msgspec

from exo.broker.bus import Bus
from exo.broker.cluster import Cluster, ClusterSettings
from exo.broker.credentials import Credentials
from exo.broker.errors import BrokerError
from exo.broker.hello import Position
from exo.broker.nats_bus import NatsBus
from exo.broker.peering import PeersSettings
from exo.streams.ids import BootId, NodeId, SessionId, new_boot_id
from exo.streams.layout import EVENTS
from exo.streams.subjects import EPOCH
from support.nats import wait_until

KEYS = Credentials("test")


class _Epoch(msgspec.Struct):
    session: SessionId
    base: int


class FakeStandby:
    """A State that is only a position: it counts events and notices sessions, as a projection does."""

    def __init__(self) -> None:
        self.position = Position()
        self.begun: list[SessionId] = []
        self._task: asyncio.Task[None] | None = None

    async def inaugurate(self, bus: Bus, session: SessionId) -> None:
        await bus.append(EPOCH, msgspec.json.encode(_Epoch(session, self.position.applied)))
        self.begun.append(session)

    def watch(self, bus: NatsBus) -> None:
        """Follow the log from now on, anew after each loss."""
        bus.on_connection_change(lambda connected: self._restart(bus, connected=connected))

    def _restart(self, bus: NatsBus, *, connected: bool) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.ensure_future(self._follow(bus)) if connected else None

    async def _follow(self, bus: NatsBus) -> None:
        with suppress(BrokerError):
            await self._join(bus)
            async for message in bus.follow(EVENTS.name, after=self.position.applied):
                self.position = msgspec.structs.replace(self.position, applied=message.sequence)

    async def _join(self, bus: NatsBus) -> None:
        newest = await bus.get_last(EVENTS.name, EPOCH)
        assert newest is not None
        epoch = msgspec.json.decode(newest.payload, type=_Epoch)
        own = self.position
        if epoch.session != own.session:
            lineage = (*own.lineage, own.session) if own.session else own.lineage
            self.position = Position(session=epoch.session, epoch=1, applied=epoch.base, lineage=lineage)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class Member:
    """One node: its cluster and its standby."""

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        peers: tuple[str, ...] = (),
        port: int = 0,
        local: bool = True,
        keys: Credentials = KEYS,
    ) -> None:
        self.name = name
        self.directory = directory / name
        self.standby = FakeStandby()
        self.moves = 0
        settings = ClusterSettings(
            directory=self.directory,
            local=local,
            peers=PeersSettings(
                node=NodeId(name),
                boot=BootId(new_boot_id()),
                name=name,
                cluster="test",
                version="1",
                host="127.0.0.1",
                port=port,
                port_is_explicit=port != 0,
                bootstrap=peers,
                discovery=False,
            ),
        )
        self.cluster = Cluster(settings, credentials=keys)
        self.standby.watch(self.cluster.bus)
        self.cluster.on_move(self._count)

    def _count(self) -> None:
        self.moves += 1

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.cluster.peers.port}"

    async def start(self) -> "Member":
        await self.cluster.start(self.standby)
        return self

    async def stop(self) -> None:
        await self.standby.stop()
        await self.cluster.stop()

    async def crash(self) -> None:
        """End as a killed process does: its server, its cluster port and its connections are gone at once."""
        cluster = self.cluster
        for task in cluster._tasks:
            task.cancel()
        await asyncio.gather(*cluster._tasks, return_exceptions=True)
        await self.standby.stop()
        hub = cluster._mover.office.hub
        await asyncio.gather(cluster.peers.stop(), *([hub.stop()] if hub is not None else []))
        await cluster.bus.close()


@asynccontextmanager
async def members(*made: Member) -> AsyncGenerator[tuple[Member, ...]]:
    """Start all at once; stop, in reverse, whatever is left."""
    async with AsyncExitStack() as stack:
        for member in made:
            stack.push_async_callback(member.stop)
        await asyncio.gather(*(member.start() for member in made))
        yield made


async def wait_agreed(*nodes: Member, timeout: float = 20.0) -> Member:
    """Wait until all follow one hub in one session; gives it."""

    def agree() -> bool:
        clusters = [node.cluster for node in nodes]
        return (
            len({(cluster.hub, cluster.session) for cluster in clusters}) == 1
            and sum(cluster.is_hub for cluster in clusters) == 1
            and all(cluster.bus.connected for cluster in clusters)
            and len({node.standby.position.session for node in nodes}) == 1
        )

    await wait_until(agree, what="one hub for all", timeout=timeout)
    return next(node for node in nodes if node.cluster.is_hub)


def pick_ports(number: int) -> list[int]:
    """Give ports that were free a moment ago; all are held until the last is picked, so that they differ."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [int(one.getsockname()[1]) for one in held]
