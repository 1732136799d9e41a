"""What `exo status`, `exo doctor` and `GET /v1/cluster` tell of the cluster. Pure.

Made by `cluster.py` from the situation and the peers' report.
"""

from collections.abc import Collection, Iterable

import msgspec

from exo.broker.hello import Hello, Role
from exo.broker.peering import Attempt, BadAddress, Peer, PeersReport, PeersSettings, Refusal, Stranger
from exo.streams.findings import NodeFinding
from exo.streams.ids import NodeId, SessionId


class MemberReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the cluster port knows it. `applied` is how far its State is in `session`."""

    node: NodeId
    name: str
    version: str
    role: Role
    hub: NodeId
    session: SessionId
    applied: int
    worker: bool
    address: str = ""
    """Where its cluster port was reached; empty for this node."""
    reached: bool = True


class MethodReport(msgspec.Struct, frozen=True, kw_only=True):
    """One way of finding others. `state`: `off`, `running`, `failed`, or `tried` for lists of addresses."""

    method: str
    state: str
    detail: str = ""
    seen: int = 0
    """How many addresses it gave."""


class ClusterReport(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster as this node sees it."""

    node: NodeId
    cluster: str
    closed: bool
    """Whether a secret keeps strangers out."""
    role: Role
    hub: NodeId
    session: SessionId
    why: str
    """The newest decision about who is hub, in words."""
    port: int
    """The cluster port."""
    members: tuple[MemberReport, ...]
    methods: tuple[MethodReport, ...]
    attempts: tuple[Attempt, ...]
    refusals: tuple[Refusal, ...]
    strangers: tuple[Stranger, ...]
    bad_addresses: tuple[BadAddress, ...]
    counters: dict[str, int]
    findings: tuple[NodeFinding, ...]


def describe_member(hello: Hello, *, address: str = "", reached: bool = True) -> MemberReport:
    """Describe a node by what it says of itself."""
    return MemberReport(
        node=hello.node,
        name=hello.name,
        version=hello.version,
        role=hello.role,
        hub=hello.hub,
        session=hello.hub_session or hello.position.session,
        applied=hello.position.applied,
        worker=hello.worker,
        address=address,
        reached=reached,
    )


def list_methods(peers: PeersReport) -> tuple[MethodReport, ...]:
    """Say which ways of finding others were tried."""
    discovery = peers.discovery
    methods = [MethodReport(method="zeroconf", state=discovery.state, detail=discovery.reason, seen=discovery.seen)]
    for source in ("bootstrap", "remembered", "member"):
        attempts = [attempt for attempt in peers.attempts if source in attempt.sources]
        outcomes = sorted({f"{attempt.address}: {attempt.outcome}" for attempt in attempts})
        state = "tried" if attempts else "off"
        methods.append(MethodReport(method=source, state=state, detail=", ".join(outcomes), seen=len(attempts)))
    return tuple(methods)


def make_report(
    own: Hello,
    peers: PeersReport,
    *,
    settings: PeersSettings,
    closed: bool,
    why: str,
    known: Iterable[Peer],
    reached: Collection[NodeId],
    findings: tuple[NodeFinding, ...],
) -> ClusterReport:
    """Put it all together; `own` is what this node says of itself."""
    others = (describe_member(peer.hello, address=peer.address, reached=peer.hello.node in reached) for peer in known)
    return ClusterReport(
        node=own.node,
        cluster=settings.cluster,
        closed=closed,
        role=own.role,
        hub=own.hub,
        session=own.hub_session,
        why=why,
        port=peers.port,
        members=(describe_member(own), *others),
        methods=list_methods(peers),
        attempts=peers.attempts,
        refusals=peers.refusals,
        strangers=peers.strangers,
        bad_addresses=peers.bad_addresses,
        counters=peers.counters,
        findings=findings,
    )
