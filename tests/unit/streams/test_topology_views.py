"""How Macs are wired, and what is wrong with it; which link is the best."""

import pytest
from msgspec.structs import replace

from exo.streams.events import LinksMeasured, NodeJoined, NodeLeft, ThunderboltObserved
from exo.streams.ids import NodeId
from exo.streams.links import Link, Thunderbolt, ThunderboltPort
from exo.streams.state import State
from exo.streams.telemetry import is_stale
from exo.streams.topology import bridge_loops, cluster_findings, thunderbolt_cables
from exo.streams.views import link_between
from support.services import fold, make_facts

Cable = tuple[str, str]


def wire(*cables: Cable, bridged: str = "", builds: str = "", rdma: str = "") -> State:
    """Macs with one-letter names; a node in `bridged` has its bridge on, one in `rdma` has RDMA on."""
    names = sorted({name for cable in cables for name in cable})
    ports: dict[str, list[ThunderboltPort]] = {name: [] for name in names}
    for number, (one, other) in enumerate(cables):
        # As macOS has it: each end names its own domain and the other's.
        ports[one].append(ThunderboltPort(receptacle="1", domain=f"{one}{number}", peer=f"{other}{number}"))
        ports[other].append(ThunderboltPort(receptacle="1", domain=f"{other}{number}", peer=f"{one}{number}"))
    state = State()
    for index, name in enumerate(names):
        build = builds[index] if builds else "B"
        facts = make_facts(name=f"mac-{name}", os_version="26.2", os_build=build)
        thunderbolt = Thunderbolt(
            ports=tuple(ports[name]), bridge=name in bridged, rdma="enabled" if name in rdma else "disabled"
        )
        node = NodeId(name)
        state = fold(state, NodeJoined(node=node, facts=facts), ThunderboltObserved(node=node, thunderbolt=thunderbolt))
    return state


def codes(state: State) -> list[str]:
    found = cluster_findings(state)
    assert all(finding.message and finding.remedy for finding in found)
    return [finding.code for finding in found]


def test_a_cable_is_one_although_both_ends_report_it() -> None:
    assert len(thunderbolt_cables(wire(("a", "b")))) == 1
    assert len(thunderbolt_cables(wire(("a", "b"), ("a", "b"), ("b", "c")))) == 3


def test_a_cable_to_a_node_that_is_gone_is_none() -> None:
    assert thunderbolt_cables(fold(wire(("a", "b")), NodeLeft(node=NodeId("b")))) == set()


@pytest.mark.parametrize(
    ("cables", "bridged", "loops"),
    [
        ([("a", "b")], "ab", []),
        ([("a", "b"), ("a", "b")], "ab", [("a", "b")]),
        ([("a", "b"), ("a", "b")], "a", []),
        ([("a", "b"), ("b", "c")], "abc", []),
        ([("a", "b"), ("b", "c"), ("c", "a")], "abc", [("a", "b", "c")]),
        ([("a", "b"), ("b", "c"), ("c", "a")], "ab", []),
        ([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")], "abcd", [("a", "b", "c")]),
        ([("a", "b"), ("a", "b"), ("c", "d"), ("c", "d")], "abcd", [("a", "b"), ("c", "d")]),
    ],
)
def test_bridges_that_form_a_ring_are_found(cables: list[Cable], bridged: str, loops: list[tuple[str, ...]]) -> None:
    state = wire(*cables, bridged=bridged, rdma="abcd")
    assert bridge_loops(state) == loops
    assert codes(state) == ["thunderbolt_bridge_loop"] * len(loops)


def test_macs_with_different_builds_are_named() -> None:
    state = wire(("a", "b"), builds="XY", rdma="ab")
    (finding,) = cluster_findings(state)
    assert finding.code == "macos_builds_differ"
    assert "26.2 (X) on mac-a" in finding.message
    assert codes(fold(state, NodeLeft(node=NodeId("b")))) == []


def test_other_computers_may_have_any_build() -> None:
    state = wire(("a", "b"), rdma="ab")
    assert codes(fold(state, NodeJoined(node=NodeId("linux"), facts=make_facts(os_build="6.1")))) == []


def test_rdma_that_is_possible_but_off_is_told() -> None:
    (finding,) = cluster_findings(wire(("a", "b"), rdma="a"))
    assert (finding.code, "mac-b" in finding.message, "mac-a" in finding.message) == ("rdma_disabled", True, False)


def test_the_best_link_is_the_widest_then_the_quickest() -> None:
    a, b, c = NodeId("a"), NodeId("b"), NodeId("c")
    wifi = Link(peer=b, local_address="1", remote_address="2", latency=0.004, bandwidth=5e7)
    cable = replace(wifi, local_address="3", latency=0.001, bandwidth=1e9)
    quick = replace(cable, local_address="4", latency=0.0001)
    state = fold(State(), NodeJoined(node=a, facts=make_facts()), LinksMeasured(node=a, links=(wifi, cable, quick)))
    assert link_between(state, a, b) == quick
    assert link_between(state, b, a) is None
    assert link_between(state, a, c) is None


def test_a_sample_is_stale_after_three_intervals_but_not_before_five_seconds() -> None:
    assert not is_stale(6, interval=2)
    assert is_stale(6.1, interval=2)
    assert not is_stale(5, interval=0.1)
    assert is_stale(5.1, interval=0.1)
