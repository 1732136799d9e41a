"""Doubles of the cluster around a node's services: a hub that never moves, and hubs that a test moves."""

from collections.abc import Callable

from exo.broker.bus import Bus
from exo.broker.errors import BusUnavailableError
from exo.broker.memory import MemoryBus
from exo.broker.memory_server import MemoryServer
from exo.broker.nats_bus import NatsBus
from exo.broker.standby import Standby
from exo.services.log_check import read_epoch
from exo.streams.ids import NodeId, SessionId, new_session_id
from exo.streams.layout import EVENTS
from exo.streams.subjects import EPOCH


async def open_another(bus: Bus) -> Bus:
    """A second connection to the server that a bus is connected to."""
    if isinstance(bus, MemoryBus):
        return MemoryBus(bus.server)
    assert isinstance(bus, NatsBus)
    another = NatsBus(bus.connection.settings)
    await another.open()
    return another


def make_server(*, base: int = 0) -> MemoryServer:
    """An empty broker whose event log begins at `base` + 1."""
    server = MemoryServer()
    server.stream(EVENTS.name).last_sequence = base
    return server


async def begin(bus: Bus, standby: Standby, *, session: SessionId | None = None) -> None:
    """Do what a hub does before it serves: begin a session, unless its log has one."""
    if read_epoch(await bus.get_last(EVENTS.name, EPOCH)) is None:
        await standby.inaugurate(bus, session or new_session_id())


class Sight:
    """What a link knows of other nodes: nothing, unless the test says so."""

    def __init__(self) -> None:
        self.lost: dict[NodeId, float] = {}
        self.silent: set[NodeId] = set()

    def gone(self) -> dict[NodeId, float]:
        return self.lost

    def unreached(self) -> set[NodeId]:
        return self.silent


class FixedLink(Sight):
    """The hub of this node, for ever."""

    def __init__(self, bus: Bus, node: NodeId) -> None:
        super().__init__()
        self.bus = bus
        self.is_hub = True
        self.hub = node

    def on_move(self, listener: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    async def open_master_bus(self) -> Bus:
        return await open_another(self.bus)


class MovableBus(MemoryBus):
    """A connection that can go over to another server, subscriptions and all, as `Connection.move` does."""

    def move(self, server: MemoryServer) -> None:
        if self.connected:
            self.disconnect()
        self.server = server
        for subscription in tuple(self._subscriptions):
            subscription.move(server)
        self.reconnect()


class MovingLink(Sight):
    """A node's place in a cluster whose hub the test moves."""

    def __init__(self, server: MemoryServer, node: NodeId, *, hub: NodeId) -> None:
        super().__init__()
        self.bus = MovableBus(server)
        self.hub = hub
        self.opened: list[MemoryBus] = []
        """The connections of masters, in the order in which they were opened."""
        self._node = node
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_hub(self) -> bool:
        return self.hub == self._node

    def on_move(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def open_master_bus(self) -> Bus:
        if not self.bus.connected:
            raise BusUnavailableError("there is no hub")
        self.opened.append(MemoryBus(self.bus.server))
        return self.opened[-1]

    def lose(self) -> None:
        """Play the death of the hub: nobody gets through."""
        if self.bus.connected:
            self.bus.disconnect()
        for bus in self.opened:
            if bus.connected:
                bus.disconnect()

    def move(self, server: MemoryServer, *, hub: NodeId) -> None:
        """Go over to another hub."""
        self.hub = hub
        self.bus.move(server)
        for listener in tuple(self._listeners):
            listener()
