"""What `GET /state/topology` says of nodes, links and their faults."""

from typing import Any

from msgspec.structs import replace

from exo.gateway.wire.topology import AgedSample, TopologyFinding, read_topology
from exo.streams.events import LinksMeasured, NodeDraining, NodeJoined, NodeTimedOut, ThunderboltObserved
from exo.streams.findings import NodeFinding
from exo.streams.ids import NodeId
from exo.streams.links import Link, Thunderbolt, ThunderboltPort
from exo.streams.state import State
from exo.streams.telemetry import FindingsGauge, Gauge, LinksGauge, MemoryGauge, Sample
from support.fake_cluster import FakeCluster
from support.gateway import Client
from support.services import NOW, fold, make_facts

A, B = NodeId("a"), NodeId("b")
LINK = Link(
    peer=B,
    local_address="10.0.0.1",
    remote_address="10.0.0.2",
    latency=0.00125,
    interface="en0",
    kind="ethernet",
    bandwidth=1e8,
    measured_at=NOW,
)


def two_nodes(*events: Any) -> State:
    facts = make_facts(name="anna", chip="M3", memory_total=8)
    joined = (NodeJoined(node=A, facts=facts), NodeJoined(node=B, facts=make_facts(name="bert", worker=False)))
    return fold(State(master=A), *joined, LinksMeasured(node=A, links=(LINK,)), *events)


def aged(gauge: Gauge, *, age: float = 1, interval: float = 2) -> AgedSample:
    return AgedSample(Sample(taken_at=0, interval=interval, gauge=gauge), age)


def test_nodes_are_shown_with_their_offices_and_the_age_of_their_memory() -> None:
    samples = {(A, "memory"): aged(MemoryGauge(total=8, available=3), age=1.5)}
    topology = read_topology(two_nodes(NodeDraining(node=B, draining=True)), samples, hub=B, now=NOW)
    anna, bert = topology.nodes[A], topology.nodes[B]
    assert (anna.name, anna.online, anna.master, anna.hub, anna.worker) == ("anna", True, True, False, True)
    assert (anna.chip, anna.memory_total, anna.memory_available) == ("M3", 8, 3)
    assert (anna.memory_age, anna.memory_stale) == (1.5, False)
    assert (bert.hub, bert.worker, bert.draining) == (True, False, True)
    assert (bert.memory_available, bert.memory_stale) == (None, True)


def test_memory_that_is_not_measured_any_more_is_stale() -> None:
    samples = {(A, "memory"): aged(MemoryGauge(total=8, available=3), age=7)}
    assert read_topology(two_nodes(), samples, hub=A, now=NOW).nodes[A].memory_stale


def test_a_node_that_is_gone_says_since_when_and_why_and_so_do_its_links() -> None:
    topology = read_topology(two_nodes(NodeTimedOut(node=B)), {}, hub=A, now=NOW)
    bert = topology.nodes[B]
    assert (bert.online, bert.cause, bert.since) == (False, "timed_out", NOW)
    assert [link.stale for link in topology.links] == [True]


def test_links_have_the_numbers_of_the_log_until_newer_ones_come() -> None:
    (link,) = read_topology(two_nodes(), {}, hub=A, now=NOW + 3000).links
    assert (link.source, link.target, link.kind, link.interface) == (A, B, "ethernet", "en0")
    assert (link.latency_ms, link.bandwidth, link.age, link.stale) == (1.25, 1e8, 3, False)
    newer = LinksGauge(links=(replace(LINK, latency=0.001),))
    (link,) = read_topology(two_nodes(), {(A, "links"): aged(newer, age=20, interval=60)}, hub=A, now=NOW + 10**9).links
    assert (link.latency_ms, link.age, link.stale) == (1, 20, False)


def test_a_link_that_is_not_measured_any_more_is_stale() -> None:
    samples = {(A, "links"): aged(LinksGauge(links=()), age=1, interval=60)}
    (link,) = read_topology(two_nodes(), samples, hub=A, now=NOW + 10**9).links
    assert link.stale


def test_faults_of_nodes_and_between_them_are_shown() -> None:
    samples = {(A, "findings"): aged(FindingsGauge(findings=(NodeFinding(code="macmon_missing", message="m"),)))}
    ports = (
        ThunderboltPort(receptacle="1", domain="a1", peer="b1"),
        ThunderboltPort(receptacle="2", domain="a2", peer="b2"),
    )
    others = (ThunderboltPort(receptacle="1", domain="b1"), ThunderboltPort(receptacle="2", domain="b2"))
    state = two_nodes(
        ThunderboltObserved(node=A, thunderbolt=Thunderbolt(ports=ports, bridge=True)),
        ThunderboltObserved(node=B, thunderbolt=Thunderbolt(ports=others, bridge=True)),
    )
    loop, missing = read_topology(state, samples, hub=A, now=NOW).findings
    assert (loop.code, loop.node) == ("thunderbolt_bridge_loop", "")
    assert missing == TopologyFinding(code="macmon_missing", message="m", remedy="", node=A)


async def test_the_route_answers_with_what_the_node_knows(client: Client, cluster: FakeCluster) -> None:
    topology = (await client.get("/state/topology")).json()
    (node,) = topology["nodes"].values()
    assert node["hub"] is True
    assert node["memory_available"] == 8_000_000
    assert node["memory_stale"] is False
    assert (topology["links"], topology["findings"]) == ([], [])
    telemetry = (await client.get("/state/telemetry")).json()
    assert telemetry["node-1"]["memory"]["stale"] is False
