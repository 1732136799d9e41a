"""For how long each node's presence key has been missing, on the master's own monotonic clock."""

from exo.broker.bus import Bus
from exo.services.clock import Clock
from exo.streams.ids import NodeId
from exo.streams.layout import NODES
from exo.streams.state import State


class PresenceWatch:
    """Begins empty at each reign: nobody is absent before it was looked for twice."""

    def __init__(self, bus: Bus, *, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._missing_since: dict[NodeId, float] = {}

    @property
    def missing(self) -> frozenset[NodeId]:
        """The online nodes whose key was not there at the last look."""
        return frozenset(self._missing_since)

    async def look(self, state: State) -> dict[NodeId, float]:
        """Give the seconds of absence of every online node whose key is missing now."""
        online = [node.id for node in state.nodes.values() if node.online]
        missing = [node for node in online if await self._bus.get(NODES.name, node) is None]
        now = self._clock.monotonic()
        self._missing_since = {node: self._missing_since.get(node, now) for node in missing}
        return {node: now - since for node, since in self._missing_since.items()}

    def forget(self) -> None:
        """Start counting anew: while the broker was away nobody could renew a key."""
        self._missing_since.clear()
