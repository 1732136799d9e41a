"""What a node tells of its cluster at `GET /v1/cluster`, as the commands read it. Pure.

Every field may be absent: the node may be of another version, and its words must still be shown.
"""

import msgspec

from exo.broker.cluster_report import MethodReport
from exo.broker.findings import choose_remedy, merge_pairs
from exo.broker.peering import Attempt, BadAddress, Refusal, Stranger
from exo.streams.findings import NodeFinding
from exo.streams.ids import NodeId
from exo.streams.merges import Merge

_QUIET = frozenset({"same_node", "connected"})
"""Nothing is wrong: a node dialled itself, or a pair that has a connection already."""


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster as the asked one reaches it."""

    node: NodeId
    name: str = ""
    version: str = ""
    role: str = ""
    address: str = ""
    reached: bool = True


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How the asked node, `node`, stands with the others. `members` holds it as well."""

    node: NodeId = NodeId("")
    cluster: str = ""
    closed: bool = False
    role: str = ""
    hub: NodeId = NodeId("")
    session: str = ""
    why: str = ""
    port: int = 0
    members: tuple[MemberView, ...] = ()
    methods: tuple[MethodReport, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    strangers: tuple[Stranger, ...] = ()
    bad_addresses: tuple[BadAddress, ...] = ()
    findings: tuple[NodeFinding, ...] = ()

    @property
    def reached(self) -> tuple[MemberView, ...]:
        """The other members that answer now."""
        return tuple(member for member in self.members if member.reached and member.node != self.node)

    @property
    def standing_refusals(self) -> tuple[Refusal, ...]:
        """One for each node that is still kept apart: who was let in later is no news, nor is meeting oneself.

        Both the copy of a member and the member have the same id.
        """
        inside = {member.node for member in self.reached}
        apart = (one for one in self.refusals if one.node not in inside or one.code == "duplicate_node")
        return tuple(merge_pairs(one for one in apart if one.code not in _QUIET))

    def choose_remedy(self, refusal: Refusal) -> str:
        """Say what to do about a refusal; empty when nobody should act on it."""
        version = next((member.version for member in self.members if member.node == self.node), "")
        return choose_remedy(refusal, cluster=self.cluster, version=version, closed=self.closed)

    @property
    def further_findings(self) -> tuple[NodeFinding, ...]:
        """Those that say more than `refusals` and `bad_addresses` do."""
        said: set[str] = {refusal.code for refusal in self.refusals}
        if self.bad_addresses:
            said.add("bad_peer_address")
        return tuple(finding for finding in self.findings if finding.code not in said)


def show_reach(report: Report, member: MemberView) -> str:
    """Say whether the asked node reaches a member, or is it."""
    if member.node == report.node:
        return "this node"
    return "reached" if member.reached else "not reached"


class ClusterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The asked node's own view, and what all agree on: what ended when two clusters became one."""

    report: Report = Report()
    merges: tuple[Merge, ...] = ()
