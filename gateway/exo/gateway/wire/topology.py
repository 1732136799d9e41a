"""`GET /state/topology`: the nodes, what connects them, and what is wrong with either. Pure.

State says who is there and which links there are; gauges say how they are right now, with their age.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from exo.streams.findings import NodeFinding
from exo.streams.ids import NodeId
from exo.streams.links import Link, LinkKind
from exo.streams.nodes import NodeRecord
from exo.streams.state import State
from exo.streams.telemetry import FindingsGauge, LinksGauge, MemoryGauge, Sample, is_stale
from exo.streams.topology import cluster_findings


class AgedSample(msgspec.Struct, frozen=True):
    """A sample and its age in seconds on the node that was asked."""

    sample: Sample
    age: float

    @property
    def stale(self) -> bool:
        return is_stale(self.age, interval=self.sample.interval)


Samples = Mapping[tuple[NodeId, str], AgedSample]


class TopologyNode(msgspec.Struct, frozen=True, kw_only=True):
    """A machine. `since` is Unix time in ms of the last change of `online`, sizes are bytes."""

    name: str
    online: bool
    since: int
    cause: str
    """Why it is offline: `left`, `timed_out`."""
    hub: bool
    master: bool
    worker: bool
    draining: bool
    version: str
    machine: str
    chip: str
    cores: int
    operating_system: str
    os_version: str
    os_build: str
    memory_total: int
    memory_available: int | None
    """None before the first sample."""
    memory_age: float | None
    """Seconds."""
    memory_stale: bool
    """Whether `memory_available` tells about the past only."""


class TopologyLink(msgspec.Struct, frozen=True, kw_only=True):
    """One direction between two addresses. `bandwidth` in bytes a second, 0 when it was not measured."""

    source: NodeId
    target: NodeId
    kind: LinkKind
    interface: str
    local_address: str
    remote_address: str
    latency_ms: float
    bandwidth: float
    age: float
    """Seconds since it was last measured."""
    stale: bool
    """Whether it was not measured lately, for example because an end is offline."""


class TopologyFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong with a node, or between several when `node` is empty."""

    code: str
    message: str
    remedy: str
    node: str = ""


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes by id, links in order of their nodes."""

    nodes: dict[NodeId, TopologyNode]
    links: tuple[TopologyLink, ...]
    findings: tuple[TopologyFinding, ...]


def read_topology(state: State, samples: Samples, *, hub: NodeId, now: int) -> Topology:
    """Put everything together. `now` is Unix time in ms."""
    return Topology(
        nodes={
            node.id: _show_node(node, samples, hub=hub, master=state.master)
            for node in sorted(state.nodes.values(), key=lambda node: node.facts.name)
        },
        links=tuple(link for source in sorted(state.nodes) for link in _show_links(state, source, samples, now=now)),
        findings=tuple(_show_findings(state, samples)),
    )


def _show_node(node: NodeRecord, samples: Samples, *, hub: NodeId, master: NodeId) -> TopologyNode:
    memory = samples.get((node.id, "memory"))
    gauge = memory.sample.gauge if memory is not None else None
    facts = node.facts
    return TopologyNode(
        name=facts.name,
        online=node.online,
        since=node.since,
        cause=node.cause,
        hub=node.id == hub,
        master=node.id == master,
        worker=facts.worker,
        draining=node.draining,
        version=facts.version,
        machine=facts.machine,
        chip=facts.chip,
        cores=facts.cores,
        operating_system=facts.operating_system,
        os_version=facts.os_version,
        os_build=facts.os_build,
        memory_total=facts.memory_total,
        memory_available=gauge.available if isinstance(gauge, MemoryGauge) else None,
        memory_age=round(memory.age, 3) if memory is not None else None,
        memory_stale=memory is None or memory.stale or not node.online,
    )


def _show_links(state: State, source: NodeId, samples: Samples, *, now: int) -> Iterator[TopologyLink]:
    newest = samples.get((source, "links"))
    gauge = newest.sample.gauge if newest is not None else None
    measured = {_pair(link): link for link in gauge.links} if isinstance(gauge, LinksGauge) else {}
    # A pair that is measured but too young for the log counts as well.
    known = {_pair(link): link for link in state.links.get(source, ())} | measured
    for pair, link in sorted(known.items()):
        age = newest.age if newest is not None and pair in measured else max(now - link.measured_at, 0) / 1000
        interval = newest.sample.interval if newest is not None else 0
        both = all(node in state.nodes and state.nodes[node].online for node in (source, link.peer))
        yield _show_link(link, source=source, age=age, stale=not both or is_stale(age, interval=interval))


def _pair(link: Link) -> tuple[str, str, str]:
    return link.peer, link.local_address, link.remote_address


def _show_link(link: Link, *, source: NodeId, age: float, stale: bool) -> TopologyLink:
    return TopologyLink(
        source=source,
        target=link.peer,
        kind=link.kind,
        interface=link.interface,
        local_address=link.local_address,
        remote_address=link.remote_address,
        latency_ms=round(link.latency * 1000, 3),
        bandwidth=link.bandwidth,
        age=round(age, 3),
        stale=stale,
    )


def _show_findings(state: State, samples: Samples) -> Iterator[TopologyFinding]:
    yield from _name(cluster_findings(state), node="")
    for node in state.nodes.values():
        newest = samples.get((node.id, "findings"))
        if newest is not None and node.online and isinstance(newest.sample.gauge, FindingsGauge):
            yield from _name(newest.sample.gauge.findings, node=node.id)


def _name(findings: Iterable[NodeFinding], *, node: str) -> Iterator[TopologyFinding]:
    for finding in findings:
        yield TopologyFinding(code=finding.code, message=finding.message, remedy=finding.remedy, node=node)
