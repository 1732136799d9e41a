"""What `exo ps` and `exo status` show: questions about State and gauges, answered as rows. Pure.

Reads the part of `GET /state` that it needs, in the contracts' own types, so that what it does not
know of a newer node does not disturb it.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from exo.ops.terminal import show_bytes, show_count, show_duration
from exo.streams.ids import InstanceId, NodeId, RunnerId
from exo.streams.instances import Failed, Instance, Loading, Ready, RemovedInstance, RunnerRecord
from exo.streams.nodes import NodeRecord
from exo.streams.tasks import TaskRecord
from exo.streams.telemetry import Gauge, MemoryGauge, ProcessorGauge, ThroughputGauge, is_stale

INSTANCE_COLUMNS = ("MODEL", "STATUS", "REQUESTS", "SINCE", "NODES", "INSTANCE")
NODE_COLUMNS = ("NODE", "STATUS", "ROLE", "MODELS", "MEMORY", "CPU", "TOKENS/S", "SINCE", "VERSION", "ID")
REMOVED_COLUMNS = ("REMOVED", "AGO", "CODE", "REASON")


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A gauge as the node that was asked has it, be it of a kind that only it knows; times in seconds."""

    gauge: dict[str, Any]
    interval: float
    age: float
    taken_at: int = 0
    """Unix ms by the clock of the node that measured."""

    def read(self) -> Gauge | None:
        """Give the gauge; None when it is of a kind that this version does not know."""
        try:
            return msgspec.convert(self.gauge, Gauge)
        except msgspec.ValidationError:
            return None


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """The part of State that is shown."""

    session: str = ""
    epoch: int = 0
    master: str = ""
    applied: int = 0
    nodes: dict[NodeId, NodeRecord] = {}
    instances: dict[InstanceId, Instance] = {}
    runners: dict[RunnerId, RunnerRecord] = {}
    tasks: dict[str, TaskRecord] = {}
    removed_instances: tuple[RemovedInstance, ...] = ()
    telemetry: dict[NodeId, dict[str, Reading]] = {}


def list_instances(view: ClusterView, *, now: float) -> list[list[str]]:
    """Give a row per instance, oldest first. `now` is Unix time in seconds."""
    placed = sorted(view.instances.values(), key=lambda instance: instance.placed_at)
    return [_show_instance(view, instance, now) for instance in placed]


def _show_instance(view: ClusterView, instance: Instance, now: float) -> list[str]:
    requests = sum(task.instance == instance.id for task in view.tasks.values())
    names = (_name_node(view, shard.node) for shard in instance.shards)
    return [
        instance.model.model_id,
        show_status(view, instance),
        str(requests),
        show_duration(now - instance.placed_at / 1000),
        ",".join(dict.fromkeys(names)),
        instance.id,
    ]


def show_status(view: ClusterView, instance: Instance) -> str:
    """Give the status of the rank that is furthest from ready, in words."""
    ranks = [view.runners[shard.runner] for shard in instance.shards if shard.runner in view.runners]
    offline = [rank for rank in ranks if not _is_online(view, rank.node)]
    if offline:
        return f"node {_name_node(view, offline[0].node)} is offline"
    waiting = [rank for rank in ranks if not isinstance(rank.status, Ready)]
    if not waiting:
        return "ready"
    match waiting[0].status:
        case Failed(message=message, attempt=attempt):
            return f"failed (attempt {attempt}): {message}"
        case Loading(layers_loaded=done, total_layers=total):
            return f"loading {done}/{total}"
        case status:
            return str(msgspec.to_builtins(status)["type"]).replace("_", " ")


def list_nodes(view: ClusterView, *, now: float, hub: str = "") -> list[list[str]]:
    """Give a row per node that ever joined, those online first. `hub` runs the message broker."""
    ordered = sorted(view.nodes.values(), key=lambda node: (not node.online, node.facts.name))
    return [_show_node(view, node, now=now, hub=hub) for node in ordered]


def _show_node(view: ClusterView, node: NodeRecord, *, now: float, hub: str) -> list[str]:
    gauges = _fresh_gauges(view, node.id)
    processor, speed = gauges.get("processor"), gauges.get("throughput")
    return [
        node.facts.name,
        _show_liveness(view, node),
        _show_role(node, master=view.master, hub=hub),
        str(sum(any(shard.node == node.id for shard in one.shards) for one in view.instances.values())),
        _show_memory(view, node),
        f"{processor.utilization:.0%}" if isinstance(processor, ProcessorGauge) else "-",
        f"{speed.generated_tokens_per_second:.1f}" if isinstance(speed, ThroughputGauge) else "-",
        show_duration(now - node.since / 1000),
        node.facts.version,
        node.id,
    ]


def _show_memory(view: ClusterView, node: NodeRecord) -> str:
    """Memory decides where models go, so that an old number is shown as well, as an old one."""
    reading = view.telemetry.get(node.id, {}).get("memory")
    gauge = reading.read() if reading is not None else None
    if reading is None or not isinstance(gauge, MemoryGauge):
        return "-"
    text = f"{show_bytes(gauge.available)} of {show_bytes(gauge.total)}"
    fresh = node.online and not is_stale(reading.age, interval=reading.interval)
    return text if fresh else f"{text} ({show_duration(reading.age)} ago)"


def _show_liveness(view: ClusterView, node: NodeRecord) -> str:
    if not node.online:
        return f"offline ({node.cause.replace('_', ' ') or 'unknown'})"
    text, silence = _show_duty(view, node), _find_silence(view, node.id)
    return f"{text} (silent {show_duration(silence)})" if silence else text


def _show_duty(view: ClusterView, node: NodeRecord) -> str:
    if not node.draining:
        return "online"
    return "draining" if count_tasks(view, node.id) else "drained"


def count_tasks(view: ClusterView, node: NodeId) -> int:
    """Count the requests at work on instances that a node takes part in."""
    shared = {key for key, item in view.instances.items() if any(shard.node == node for shard in item.shards)}
    return sum(task.instance in shared for task in view.tasks.values())


def can_serve_without(view: ClusterView, node: NodeId) -> bool:
    """Whether any other node takes new requests for models."""
    others = (one for one in view.nodes.values() if one.id != node)
    return any(one.online and one.facts.worker and not one.draining for one in others)


def _find_silence(view: ClusterView, node: NodeId) -> float:
    """Give for how many seconds nothing at all has come from a node; 0 when that is not long for it."""
    readings = view.telemetry.get(node, {}).values()
    age = min((reading.age for reading in readings), default=0)
    most_often = min((reading.interval for reading in readings), default=0)
    return age if is_stale(age, interval=most_often) else 0


def _show_role(node: NodeRecord, *, master: str, hub: str) -> str:
    """Say what it does beside running models; an office that a lost node still holds on paper is not shown."""
    offices = [name for name, holder in (("hub", hub), ("master", master)) if holder == node.id and node.online]
    return ", ".join([*offices, *([] if node.facts.worker else ["no worker"])]) or "-"


def _fresh_gauges(view: ClusterView, node: NodeId) -> dict[str, Gauge]:
    """Leave out what is older than three of its own intervals: an old number shown as new is a lie."""
    if not _is_online(view, node):
        return {}
    readings = view.telemetry.get(node, {}).items()
    fresh = {name: reading.read() for name, reading in readings if not is_stale(reading.age, interval=reading.interval)}
    return {name: gauge for name, gauge in fresh.items() if gauge is not None}


def list_removed(view: ClusterView, *, now: float, limit: int = 5) -> list[list[str]]:
    """Give a row per instance that was removed for a reason other than somebody's wish, newest first."""
    removed = [item for item in reversed(view.removed_instances) if item.code]
    return [
        [item.model_id, show_duration(now - item.removed_at / 1000), item.code, item.reason] for item in removed[:limit]
    ]


def summarize(view: ClusterView) -> list[str]:
    """Give the lines above the tables."""
    gauges = [_fresh_gauges(view, node).get("throughput") for node in view.telemetry]
    speed = sum(gauge.generated_tokens_per_second for gauge in gauges if isinstance(gauge, ThroughputGauge))
    online = sum(node.online for node in view.nodes.values())
    nodes, instances = show_count(len(view.nodes), "node"), show_count(len(view.instances), "instance")
    work = f"{show_count(len(view.tasks), 'request')} in flight, {speed:.1f} tokens/s"
    return [
        f"{online} of {nodes} online, {instances}, {work}",
        f"session {view.session or '-'}, epoch {view.epoch}, {show_count(view.applied, 'event')}",
    ]


def name_instances(view: ClusterView, wanted: str) -> Iterator[Instance]:
    """Give the instance of that id, else all instances of that model: by its id, or the part after `org/`.

    Else the one whose id begins so: pages show ids cut short.
    """
    if InstanceId(wanted) in view.instances:
        yield view.instances[InstanceId(wanted)]
        return
    short = wanted.lower()
    named = [one for one in view.instances.values() if short in _names_of(one.model.model_id.lower())]
    begun = [one for key, one in view.instances.items() if short and key.startswith(short)]
    yield from named or (begun if len(begun) == 1 else ())


def _names_of(model: str) -> set[str]:
    return {model, model.rsplit("/", 1)[-1]}


def _name_node(view: ClusterView, node: NodeId) -> str:
    record = view.nodes.get(node)
    return record.facts.name if record else node


def _is_online(view: ClusterView, node: NodeId) -> bool:
    record = view.nodes.get(node)
    return record is not None and record.online
