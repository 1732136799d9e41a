"""What keeps nodes apart or endangers the hub, as findings with stable codes. Pure.

Made by `cluster.py` and `watch.py`, shown by `exo doctor`, `exo status` and the dashboard.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from exo.broker.hello import Hello
from exo.broker.join_line import make_join_line
from exo.broker.peering import PeersReport, PeersSettings, Refusal
from exo.streams.findings import NodeFinding

_REMEDIES: Final[dict[str, str]] = {
    "version_incompatible": "install the same version on both",
    "duplicate_node": "stop one of the two, delete `node_id` in its data directory, and start it again",
}
DEFAULT_NAMES: Final = "install the same version on both, or start both with one --namespace"
"""How clusters meet whose names are versions, because nobody gave them one."""

STORE_DISK_FULL: Final = "store_disk_full"
STORE_REMOVED: Final = NodeFinding(
    code="store_removed",
    message="the message store was deleted while in use; the cluster went on from what every node holds",
    remedy="keep other programs away from exo's data directory",
)


def hub_unreachable(name: str, reason: object) -> NodeFinding:
    """Describe a hub whose cluster port answers and whose message server does not."""
    return NodeFinding(
        code="hub_unreachable",
        message=f"{name} is the hub, but its message server is not reached: {reason}",
        remedy="let its NATS port through the firewall, or fix it with --nats-port",
    )


def hub_cannot_start(reason: object) -> NodeFinding:
    """Describe a node that is to be hub and cannot."""
    return NodeFinding(
        code="hub_cannot_start",
        message=f"this node is to be the hub, but its message server does not start: {reason}",
        remedy="see nats-server.log below the store; another node takes over if there is one",
    )


def find_other_versions(own: str, members: Iterable[Hello]) -> Iterator[NodeFinding]:
    """Warn of members of another version: a cluster with a name of its own lets them meet."""
    others = [f"{member.name} runs {member.version}" for member in members if member.version != own]
    if others:
        yield NodeFinding(
            code="mixed_versions",
            message=f"this node runs {own}, {', '.join(others)}",
            remedy="install one version everywhere: what only the newer one knows is skipped by the older one",
        )


def choose_remedy(refusal: Refusal, *, cluster: str, version: str, closed: bool) -> str:
    """Say what to do about a refusal, and on which machine; empty when nobody should act on it.

    `cluster`, `version` and `closed` are this node's.
    """
    name = refusal.name or "the other machine"
    match refusal.code:
        case "secret_mismatch" if closed:
            return f"`exo cluster join SECRET` on {name}; `exo cluster secret` on this machine prints it"
        case "secret_mismatch":
            return f"`exo cluster join SECRET` on this machine; `exo cluster secret` on {name} prints it"
        case "other_cluster" if (cluster, refusal.cluster) == (version, refusal.version):
            return DEFAULT_NAMES
        case "other_cluster":
            return "to join the two, start both with the same --namespace"
        case code:
            return _REMEDIES.get(code, "")


def merge_pairs(refusals: Iterable[Refusal]) -> list[Refusal]:
    """Make one of what two nodes refuse each other for: the newest, told as ours if it is ours too."""
    pairs: dict[tuple[str, str], Refusal] = {}
    for refusal in refusals:
        key = (refusal.code, refusal.node or refusal.address)
        earlier = pairs.pop(key, refusal)
        first, last = sorted((earlier, refusal), key=lambda one: one.refused_at)
        told = last if last.by_us or not first.by_us else first
        pairs[key] = replace(told, refused_at=last.refused_at, times=max(first.times, last.times))
    return list(pairs.values())


def find_in_peers(
    peers: PeersReport, settings: PeersSettings, *, alone: bool, closed: bool, addresses: Iterable[str]
) -> Iterator[NodeFinding]:
    """Name what keeps nodes apart. `addresses` are where others reach this node, none with `--local`."""
    for refusal in merge_pairs(peers.refusals):
        remedy = choose_remedy(refusal, cluster=settings.cluster, version=settings.version, closed=closed)
        if remedy:
            yield NodeFinding(code=refusal.code, message=refusal.reason, remedy=remedy)
    for bad in peers.bad_addresses:
        yield NodeFinding(
            code="bad_peer_address",
            message=f"{bad.text!r} {bad.reason}",
            remedy="write host, host:port or /ip4/HOST/tcp/PORT",
        )
    for peer in peers.unadmitted:
        yield NodeFinding(
            code="peer_not_admitted",
            message=f"this node could not let {peer.name} in: {peer.reason}",
            remedy="it is tried again by itself; the log of this node says more",
        )
    yield from _find_silence(peers, settings, alone=alone, closed=closed, addresses=tuple(addresses))


def _find_silence(
    peers: PeersReport, settings: PeersSettings, *, alone: bool, closed: bool, addresses: tuple[str, ...]
) -> Iterator[NodeFinding]:
    line = make_join_line(settings.cluster, addresses, version=settings.version, closed=closed)
    if peers.discovery.state == "failed":
        yield NodeFinding(
            code="discovery_failed",
            message=f"looking for other nodes by multicast does not work: {peers.discovery.reason}",
            remedy=f"name this node to the others: {line}" if addresses else "",
        )
    elif alone and addresses:
        yield NodeFinding(
            code="no_other_node", message="no other node was found", remedy=f"if there is one, start it with: {line}"
        )
