"""What connects two nodes: one `Link` for each pair of addresses that reach each other.

Measured by the node it starts at, so that a pair of nodes has at least one link in each direction.
"""

from typing import Literal

import msgspec

from exo.streams.ids import NodeId

LinkKind = Literal["thunderbolt", "ethernet", "wifi", "loopback", "other"]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """From the node that measured it to `peer`. `latency` in seconds there and back, `bandwidth` in bytes a second."""

    peer: NodeId
    local_address: str
    remote_address: str
    latency: float
    interface: str = ""
    """Of the node that measured."""
    kind: LinkKind = "other"
    bandwidth: float = 0
    """0 is not measured yet."""
    measured_at: int = 0
    """Unix time in ms of the measurement that these numbers are of."""


class ThunderboltPort(msgspec.Struct, frozen=True, kw_only=True):
    """A Thunderbolt receptacle of a Mac. `domain` and `peer` are the ids that both ends of a cable name."""

    receptacle: str
    domain: str
    peer: str = ""
    """The other Mac's domain, empty when no Mac is plugged in."""
    interface: str = ""
    speed: str = ""
    """As macOS says it, for example `80 Gb/s`."""
    rdma: str = ""
    """The RDMA device of this port, `rdma_en2`; empty when there is none."""


class Thunderbolt(msgspec.Struct, frozen=True, kw_only=True):
    """What the other nodes must know of a Mac's Thunderbolt."""

    ports: tuple[ThunderboltPort, ...] = ()
    bridge: bool = False
    """Whether an active bridge joins two or more Thunderbolt ports."""
    rdma: Literal["unknown", "unsupported", "disabled", "enabled"] = "unknown"
