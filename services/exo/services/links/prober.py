"""Measuring as a port: the cluster port's peers do it, tests play it."""

from collections.abc import Sequence
from typing import Protocol

from exo.streams.ids import NodeId


class Probed(Protocol):
    """One measurement of the way between two addresses, without ports: seconds there and back, bytes a second."""

    @property
    def local_address(self) -> str: ...
    @property
    def remote_address(self) -> str: ...
    @property
    def latency(self) -> float: ...
    @property
    def bandwidth(self) -> float:
        """0 when it was not measured."""
        ...


class LinkProber(Protocol):
    """Whoever is connected to the other nodes."""

    async def measure(self, node: NodeId, *, bandwidth: bool = True) -> Sequence[Probed]:
        """Measure every pair of addresses over which a node answers; none when it is not reached.

        Without `bandwidth` only the latency, which costs next to nothing.
        """
        ...
