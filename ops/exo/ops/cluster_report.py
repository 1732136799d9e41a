"""What a node tells of its cluster at `GET /v1/cluster`, as the commands read it. Pure.

Every field may be absent: the node may be of another version, and its words must still be shown.
"""

import msgspec

from exo.broker.peering import Attempt, BadAddress, DiscoveryState, Refusal, Stranger
from exo.streams.ids import NodeId
from exo.streams.merges import Merge


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """Another node of the cluster as the asked one reaches it."""

    node: NodeId
    name: str = ""
    version: str = ""
    role: str = ""
    address: str = ""
    reached: bool = True


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong, in the node's own words."""

    code: str
    message: str
    remedy: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How the asked node stands with the others."""

    cluster: str = ""
    closed: bool = False
    role: str = ""
    hub: NodeId = NodeId("")
    session: str = ""
    why: str = ""
    addresses: tuple[str, ...] = ()
    """Where its own cluster port can be tried."""
    members: tuple[MemberView, ...] = ()
    discovery: DiscoveryState = DiscoveryState("off")
    attempts: tuple[Attempt, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    strangers: tuple[Stranger, ...] = ()
    bad_addresses: tuple[BadAddress, ...] = ()
    findings: tuple[FindingView, ...] = ()

    @property
    def reached(self) -> tuple[MemberView, ...]:
        """The members that answer now."""
        return tuple(member for member in self.members if member.reached)


class ClusterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The asked node's own view, and what all agree on: what ended when two clusters became one."""

    report: Report = Report()
    merges: tuple[Merge, ...] = ()
