"""What nodes say to each other on the cluster port, before and beside NATS. Pure data; `frames` of JSON.

The peers of a node exchange a `Hello` on every change and each `HEARTBEAT`. `arbitration.py` decides
from them who is hub; `exo status` and `exo doctor` show them.
"""

from typing import Final, Literal

import msgspec

from exo.streams.ids import BootId, NodeId, SessionId

HEARTBEAT: Final = 0.5
"""Seconds between two Hellos to a peer."""

SILENCE: Final = 2.0
"""Seconds without a Hello after which a peer counts as not reached."""

Role = Literal["starting", "hub", "following", "lost", "leaving"]
"""`lost` had a hub and has none now; `leaving` stops in good order and hands its office over."""


class Member(msgspec.Struct, frozen=True):
    """A node that the sender reaches, and where its cluster port can be tried (`host:port`)."""

    node: NodeId
    addresses: tuple[str, ...]


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a node's State is: the standby's part of its Hello."""

    session: SessionId = SessionId("")
    epoch: int = 0
    applied: int = 0
    lineage: tuple[SessionId, ...] = ()
    """The sessions that this one continues, oldest first."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows and wants. Times are Unix ms by the sender's clock, used to order, never to measure."""

    node: NodeId
    boot: BootId
    name: str
    version: str
    started_at: int
    role: Role
    position: Position
    hub: NodeId = NodeId("")
    """Whom it follows, itself when it is the hub, empty when it has none."""
    hub_since: int = 0
    """When the hub's session began."""
    hub_session: SessionId = SessionId("")
    """The session that the hub serves; a new follower's own `position` may still be of another."""
    hub_addresses: tuple[str, ...] = ()
    """Where the hub's NATS listens, `host:port`; said by the hub and repeated by its followers."""
    present: int = 0
    """Said by a hub: the nodes that follow it, itself included."""
    full: str = ""
    """Said by a hub: why nothing new should be stored there; empty when it may."""
    addresses: tuple[str, ...] = ()
    """Where the sender's own cluster port can be tried."""
    members: tuple[Member, ...] = ()
    """Whom the sender reaches."""
    stands: bool = True
    """Whether it can become hub. A node that is about to stop cannot, while it still uses the bus."""
    worker: bool = True
    fingerprint: str = ""
    """Of the machine, to tell a cloned data directory from a node that moved."""
