"""Pure questions about State."""

from collections import Counter
from collections.abc import Container

from exo.streams.codes import Code
from exo.streams.ids import InstanceId, ModelId, NodeId, SessionId
from exo.streams.instances import Failed, Instance, Ready, RunnerRecord
from exo.streams.links import Link
from exo.streams.models import ModelCard
from exo.streams.nodes import NodeRecord
from exo.streams.state import State
from exo.streams.tasks import EndedTask

_LOST = frozenset({Code.NODE_TIMED_OUT, Code.NODE_RESTARTED, Code.CLUSTER_MERGED})


def is_descendant(state: State, session: SessionId) -> bool:
    """Whether State is of a session or of one that continues it, near or far."""
    return session == state.session or session in state.lineage


def is_adoptable(state: State, instance: Instance) -> bool:
    """Whether every runner of an instance lives although State knows no such instance."""
    strays = (report for node in state.nodes.values() if node.online for report in node.strays)
    alive = {report.runner for report in strays if not isinstance(report.status, Failed)}
    return all(shard.runner in alive for shard in instance.shards)


def runners_of(state: State, instance: InstanceId) -> list[RunnerRecord]:
    """Give the runners of an instance in order of rank."""
    shards = state.instances[instance].shards
    return [state.runners[shard.runner] for shard in sorted(shards, key=lambda shard: shard.rank)]


def is_ready(state: State, instance: InstanceId) -> bool:
    """Whether every rank of an instance is ready on a node that is online."""
    return all(
        isinstance(runner.status, Ready) and is_online(state, runner.node) for runner in runners_of(state, instance)
    )


def is_online(state: State, node: NodeId) -> bool:
    """Whether a node is known and present."""
    record = state.nodes.get(node)
    return record is not None and record.online


def instances_of(state: State, model: ModelId) -> list[Instance]:
    """Give all placed instances of a model, oldest first."""
    return [item for item in state.instances.values() if item.model.model_id == model]


def tasks_in_flight(state: State) -> Counter[InstanceId]:
    """Count the unfinished requests of each instance."""
    return Counter(task.instance for task in state.tasks.values())


def least_busy_instance(state: State, model: ModelId, *, unheard: Container[NodeId] = ()) -> Instance | None:
    """Give the ready instance of a model with the fewest requests; the oldest of equals.

    One on a node that is silent or being emptied counts only when nothing else is ready.
    """
    ready = [item for item in instances_of(state, model) if is_ready(state, item.id)]
    counts = tasks_in_flight(state)

    def is_unheard(instance: Instance) -> bool:
        return any(shard.node in unheard for shard in instance.shards)

    return min(ready, key=lambda item: (is_unheard(item), is_draining(state, item), counts[item.id]), default=None)


def is_lost(state: State, ended: EndedTask) -> bool:
    """Whether a request ended for no reason of its own, so that it may be begun anew elsewhere."""
    if ended.outcome != "failed" or ended.code not in {*_LOST, Code.INSTANCE_REMOVED}:
        return False
    removed = next((item for item in reversed(state.removed_instances) if item.id == ended.instance), None)
    return removed is None or removed.code != Code.INSTANCE_REMOVED


def is_draining(state: State, instance: Instance) -> bool:
    """Whether any node of an instance is being emptied."""
    return any(state.nodes[shard.node].draining for shard in instance.shards if shard.node in state.nodes)


def link_between(state: State, source: NodeId, target: NodeId) -> Link | None:
    """Give the best link from one node to another as the first measured it: the widest, then the quickest."""
    links = [link for link in state.links.get(source, ()) if link.peer == target]
    return max(links, key=lambda link: (link.bandwidth, -link.latency), default=None)


def failure_of(state: State, instance: InstanceId) -> Failed | None:
    """Give the failure of the first failed rank, if any rank has failed."""
    statuses = (runner.status for runner in runners_of(state, instance))
    return next((status for status in statuses if isinstance(status, Failed)), None)


def online_workers(state: State) -> list[NodeRecord]:
    """Give the nodes that can be placed on."""
    return [node for node in state.nodes.values() if node.online and node.facts.worker]


def find_idle_node(state: State, instance: Instance) -> NodeRecord | None:
    """Give a node of an instance that is online but runs no models any more: no runner will ever start there."""
    nodes = (state.nodes.get(shard.node) for shard in instance.shards)
    return next((node for node in nodes if node is not None and node.online and not node.facts.worker), None)


def known_cards(state: State) -> dict[ModelId, ModelCard]:
    """Give every card that State knows: held by a node, or custom (a custom card wins)."""
    cards = {report.card.model_id: report.card for node in state.nodes.values() for report in node.models}
    return {**cards, **state.cards}


def nodes_holding(state: State, model: ModelId) -> set[NodeId]:
    """Give the nodes whose disk has a complete copy of a model."""
    return {
        node.id
        for node in state.nodes.values()
        for report in node.models
        if report.card.model_id == model and report.status in {"complete", "read_only"}
    }
