"""What `exo status`, `exo doctor` and `GET /v1/cluster` tell of the cluster. Pure.

Made by `cluster.py` from the situation and the peers' report.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from exo.broker.hello import Hello, Role
from exo.broker.peering import Attempt, BadAddress, PeersReport, Refusal, Stranger
from exo.streams.findings import NodeFinding
from exo.streams.ids import NodeId, SessionId

_TOLD: Final = {"secret_mismatch", "version_incompatible", "duplicate_node", "other_cluster"}
"""Refusals that somebody should act on."""


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


def find_in_peers(peers: PeersReport, *, alone: bool, join_address: str) -> Iterable[NodeFinding]:
    """Name what keeps nodes apart. `join_address` is where others reach this node, empty with `--local`."""
    for refusal in peers.refusals:
        if refusal.code in _TOLD:
            yield NodeFinding(code=refusal.code, message=refusal.reason)
    for bad in peers.bad_addresses:
        yield NodeFinding(
            code="bad_peer_address",
            message=f"{bad.text!r} {bad.reason}",
            remedy="write host, host:port or /ip4/HOST/tcp/PORT",
        )
    if peers.discovery.state == "failed":
        yield NodeFinding(
            code="discovery_failed",
            message=f"looking for other nodes by multicast does not work: {peers.discovery.reason}",
            remedy=f"name one node to the others: exo up --join {join_address}" if join_address else "",
        )
    elif alone and join_address:
        yield NodeFinding(
            code="no_other_node",
            message="no other node was found",
            remedy=f"if there is one, start it with: exo up --join {join_address}",
        )
