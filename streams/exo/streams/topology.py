"""Pure questions about how the Macs of a cluster are wired, and what is wrong with it.

`GET /state/topology` and the dashboard show the findings; nothing acts on them.
"""

from collections import Counter
from collections.abc import Iterable

from exo.streams.findings import NodeFinding
from exo.streams.ids import NodeId
from exo.streams.state import State

Cable = frozenset[tuple[NodeId, str]]
"""Both ends of a Thunderbolt cable: node and domain."""


def thunderbolt_cables(state: State) -> set[Cable]:
    """Give the cables between online nodes, each once, however many of its ends report it."""
    ports = [
        (node, port)
        for node, thunderbolt in state.thunderbolt.items()
        if node in state.nodes and state.nodes[node].online
        for port in thunderbolt.ports
    ]
    homes = {port.domain: node for node, port in ports}
    return {
        frozenset({(node, port.domain), (homes[port.peer], port.peer)})
        for node, port in ports
        if port.peer in homes and homes[port.peer] != node
    }


def bridge_loops(state: State) -> list[tuple[NodeId, ...]]:
    """Give the groups of nodes whose Thunderbolt bridges form a ring: packets circle in it for ever.

    Two nodes with two cables are one; two nodes with one cable are none.
    """
    bridged = {node for node, thunderbolt in state.thunderbolt.items() if thunderbolt.bridge}
    pairs = [tuple(sorted(node for node, _ in cable)) for cable in thunderbolt_cables(state)]
    pairs = [pair for pair in pairs if bridged.issuperset(pair)]
    while True:
        # Whoever hangs on one cable is in no ring.
        degrees = Counter(node for pair in pairs for node in pair)
        kept = [pair for pair in pairs if all(degrees[node] > 1 for node in pair)]
        if len(kept) == len(pairs):
            return _group(pairs)
        pairs = kept


def _group(pairs: Iterable[tuple[NodeId, ...]]) -> list[tuple[NodeId, ...]]:
    groups: list[set[NodeId]] = []
    for pair in pairs:
        touching = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if group not in touching]
        groups.append(set(pair).union(*touching))
    return sorted(tuple(sorted(group)) for group in groups)


def cluster_findings(state: State) -> list[NodeFinding]:
    """Give what is wrong between the Macs of a cluster."""
    return [*_find_loops(state), *_find_builds(state), *_find_unused_rdma(state)]


def _find_loops(state: State) -> Iterable[NodeFinding]:
    for loop in bridge_loops(state):
        yield NodeFinding(
            code="thunderbolt_bridge_loop",
            message=f"the Thunderbolt bridges of {_name(state, loop)} form a ring: packets circle until nothing works",
            remedy="on all but one of them: `sudo networksetup -setnetworkserviceenabled 'Thunderbolt Bridge' off`",
        )


def _find_builds(state: State) -> Iterable[NodeFinding]:
    builds: dict[str, list[NodeId]] = {}
    for node in state.nodes.values():
        if node.online and node.id in state.thunderbolt and node.facts.os_build:
            builds.setdefault(f"{node.facts.os_version} ({node.facts.os_build})", []).append(node.id)
    if len(builds) > 1:
        listed = "; ".join(f"{build} on {_name(state, nodes)}" for build, nodes in sorted(builds.items()))
        yield NodeFinding(
            code="macos_builds_differ",
            message=f"the Macs run different builds of macOS: {listed}",
            remedy="bring all of them to the same build: RDMA between different builds fails or hangs",
        )


def _find_unused_rdma(state: State) -> Iterable[NodeFinding]:
    linked = {node for cable in thunderbolt_cables(state) for node, _ in cable}
    disabled = [node for node in sorted(linked) if state.thunderbolt[node].rdma == "disabled"]
    if disabled:
        yield NodeFinding(
            code="rdma_disabled",
            message=f"RDMA is possible over Thunderbolt but off on {_name(state, disabled)}",
            remedy="start into recovery mode and run `rdma_ctl enable`; docs/rdma.md has the steps",
        )


def _name(state: State, nodes: Iterable[NodeId]) -> str:
    return ", ".join(state.nodes[node].facts.name if node in state.nodes else node for node in nodes)
