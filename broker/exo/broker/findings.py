"""What keeps nodes apart or endangers the hub, as findings with stable codes. Pure.

Made by `cluster.py` and `watch.py`, shown by `exo doctor`, `exo status` and the dashboard.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from exo.broker.hello import Hello
from exo.broker.peering import PeersReport
from exo.streams.findings import NodeFinding

REFUSAL_REMEDIES: Final[dict[str, str]] = {
    "secret_mismatch": "`exo cluster join SECRET` on the machine that lacks it; `exo cluster secret` prints it",
    "version_incompatible": "install the same version on both",
    "duplicate_node": "stop one of the two, delete `node_id` in its data directory, and start it again",
    "other_cluster": "to join the two, start both with the same --namespace",
}
"""What to do about those refusals that somebody should act on, by code."""

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


def find_in_peers(peers: PeersReport, *, alone: bool, join_address: str) -> Iterator[NodeFinding]:
    """Name what keeps nodes apart. `join_address` is where others reach this node, empty with `--local`."""
    for refusal in peers.refusals:
        if refusal.code in REFUSAL_REMEDIES:
            yield NodeFinding(code=refusal.code, message=refusal.reason, remedy=REFUSAL_REMEDIES[refusal.code])
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
