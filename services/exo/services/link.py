"""`ClusterLink`: what the services of a node need of the cluster around them.

`exo.broker.cluster.Cluster` fulfils it; tests have a double over a `MemoryServer`.
"""

from collections.abc import Callable
from typing import Protocol

from exo.broker.bus import Bus
from exo.streams.ids import NodeId


class ClusterLink(Protocol):
    """The place of this node in the cluster."""

    @property
    def bus(self) -> Bus:
        """The node's one connection, the same object for life; it is moved when the hub moves."""
        ...

    @property
    def is_hub(self) -> bool: ...

    @property
    def hub(self) -> NodeId:
        """The node whose server `bus` is connected to; empty while there is none."""
        ...

    def gone(self) -> dict[NodeId, float]:
        """Give the known nodes whose process is gone, and for how many seconds that has been certain.

        Their connection to this node broke and their machine has refused another since; who is silent is not gone.
        """
        ...

    def unreached(self) -> set[NodeId]:
        """Give the known nodes that this one does not hear, for whatever reason."""
        ...

    def on_move(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener()` when `bus` serves another hub or session; gives a function that ends it."""
        ...

    async def open_master_bus(self) -> Bus:
        """Give a new connection to the present hub with a master's rights, which never moves; the caller closes it.

        `BusUnavailableError` when there is no hub.
        """
        ...
