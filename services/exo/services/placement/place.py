"""`place`: one way to run a model on the nodes there are, or the reason why there is none. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from exo.services.placement.memory import Need, engine_of, fit, free_on, in_gb, promised_on, reserve_of
from exo.streams.codes import Code
from exo.streams.ids import InstanceId, NodeId, RunnerId
from exo.streams.instances import Instance, Shard, Sharding, Transport
from exo.streams.models import ModelCard
from exo.streams.nodes import NodeRecord
from exo.streams.placements import Preview, Unplaceable
from exo.streams.state import State
from exo.streams.telemetry import MemoryGauge
from exo.streams.views import link_between, nodes_holding, online_workers

SLOW_LINK = 0.02
"""Seconds there and back: a crowded Wi-Fi, a VPN. On a cable it is below a thousandth."""

Memory = Mapping[NodeId, MemoryGauge]
"""The newest memory sample of each node that has sent one lately."""


class PlaceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asks for; `context_length` 0 is as much as fits."""

    sharding: Sharding = "Pipeline"
    transport: Transport = "MlxRing"
    min_nodes: int = 1
    context_length: int = 0


def place(
    card: ModelCard,
    *,
    instance: InstanceId,
    state: State,
    memory: Memory,
    options: PlaceOptions,
    now: int,
) -> Instance | Unplaceable:
    """Choose a node that holds the model's files and has room.

    Rather not one behind a slow link; then one without this model, with few others, with much free memory.
    """
    refused = _refuse_options(card, options, nodes=len(online_workers(state)))
    if refused is not None:
        return refused
    nodes = list_candidates(card, state)
    if isinstance(nodes, Unplaceable):
        return nodes
    known = [node for node in nodes if node.id in memory]
    if not known:
        return Unplaceable(code=Code.MEMORY_UNKNOWN, reason="no node has reported its memory lately; try again shortly")
    free = {node.id: free_on(state, node.id, memory[node.id]) for node in known}
    placed = list(state.instances.values())
    same = _count_on_nodes(one for one in placed if one.model.model_id == card.model_id)
    others = _count_on_nodes(placed)
    for node in sorted(
        known, key=lambda node: (_is_far(state, node.id), same[node.id], others[node.id], -free[node.id])
    ):
        need = _fit(card, node, free=free[node.id], options=options)
        if need.total <= free[node.id]:
            return _build(card, need, instance=instance, node=node.id, options=options, now=now)
    best = max(known, key=lambda node: free[node.id])
    need = _fit(card, best, free=free[best.id], options=options)
    refusal = _explain_shortage(card, need, node=best, state=state, gauge=memory[best.id])
    return replace(refusal, reason=refusal.reason + _name_unknown(nodes, memory))


def _fit(card: ModelCard, node: NodeRecord, *, free: int, options: PlaceOptions) -> Need:
    return fit(card, free=free, context_length=options.context_length, backends=node.facts.backends)


def _count_on_nodes(instances: Iterable[Instance]) -> Counter[NodeId]:
    return Counter(node for instance in instances for node in {shard.node for shard in instance.shards})


def _is_far(state: State, node: NodeId) -> bool:
    """Whether every token of this node would take a slow way: all of them pass the hub, where the master is too."""
    link = link_between(state, node, state.master)
    return link is not None and link.latency > SLOW_LINK


def previews(
    card: ModelCard,
    *,
    state: State,
    memory: Memory,
    draw_id: Callable[[], InstanceId],
    min_nodes: int = 1,
    now: int,
) -> list[Preview]:
    """Give every combination of sharding and transport, each with its instance or its reason."""
    shardings: tuple[Sharding, ...] = ("Pipeline", "Tensor")
    transports: tuple[Transport, ...] = ("MlxRing", "MlxJaccl")
    found: list[Preview] = []
    for sharding in shardings:
        for transport in transports:
            options = PlaceOptions(sharding=sharding, transport=transport, min_nodes=min_nodes)
            answer = place(card, instance=draw_id(), state=state, memory=memory, options=options, now=now)
            found.append(_preview(answer, options))
    return found


def list_candidates(card: ModelCard, state: State) -> list[NodeRecord] | Unplaceable:
    """Give the nodes that can run a model as far as files and backends go."""
    workers = online_workers(state)
    if not workers:
        return Unplaceable(code=Code.UNPLACEABLE, reason="no node that runs models is online")
    workers = [node for node in workers if not node.draining]
    if not workers:
        reason = "every node that runs models is being drained; `exo drain NODE --undo` takes it back"
        return Unplaceable(code=Code.UNPLACEABLE, reason=reason)
    if engine_of(card) == "scripted":
        return workers
    able = [node for node in workers if set(node.facts.backends) & set(card.backends)]
    if not able:
        needs = ", ".join(card.backends)
        return Unplaceable(code=Code.UNPLACEABLE, reason=f"{card.model_id} needs one of {needs}; no node has it")
    holders = nodes_holding(state, card.model_id)
    ready = [node for node in able if node.id in holders]
    if not ready:
        reason = f"no node holds the files of {card.model_id}; fetch them with `exo models add {card.model_id}`"
        return Unplaceable(code=Code.MODEL_FILES_MISSING, reason=reason)
    return ready


def _refuse_options(card: ModelCard, options: PlaceOptions, *, nodes: int) -> Unplaceable | None:
    reason = ""
    if options.min_nodes > 1:
        reason = f"{options.min_nodes} nodes are asked for; this version places a model on one node ({nodes} online)"
    elif options.transport == "MlxJaccl":
        reason = "MlxJaccl needs at least 2 nodes with RDMA links between them"
    elif options.sharding == "Tensor":
        reason = "Tensor sharding needs at least 2 nodes"
    elif card.context_length and options.context_length > card.context_length:
        reason = f"{card.model_id} takes at most {card.context_length} tokens, {options.context_length} are asked for"
    return Unplaceable(code=Code.UNPLACEABLE, reason=reason) if reason else None


def _name_unknown(nodes: list[NodeRecord], memory: Memory) -> str:
    """Say who was left out because nothing is known of its memory, or only what it was once."""
    silent = ", ".join(node.facts.name for node in nodes if node.id not in memory)
    return f"; not counted, because their memory was not reported lately: {silent}" if silent else ""


def _explain_shortage(
    card: ModelCard, need: Need, *, node: NodeRecord, state: State, gauge: MemoryGauge
) -> Unplaceable:
    free = free_on(state, node.id, gauge)
    promised = promised_on(state, node.id, gauge)
    reason = (
        f"{card.model_id} needs {in_gb(need.total)} (weights {in_gb(need.weights)}, KV cache {in_gb(need.kv_cache)} "
        f"for {need.context_length} tokens, overhead {in_gb(need.overhead)}) but {node.facts.name} can give "
        f"{in_gb(free)} (available {in_gb(gauge.available)}, kept for the system {in_gb(reserve_of(gauge))}, "
        f"promised to other instances {in_gb(promised)}): {in_gb(need.total - free)} are missing"
    )
    return Unplaceable(code=Code.INSUFFICIENT_MEMORY, reason=reason)


def _build(
    card: ModelCard, need: Need, *, instance: InstanceId, node: NodeId, options: PlaceOptions, now: int
) -> Instance:
    shard = Shard(
        runner=RunnerId(f"{instance}-0"),
        node=node,
        rank=0,
        world_size=1,
        start_layer=0,
        end_layer=card.n_layers,
        n_layers=card.n_layers,
        memory_bytes=need.total,
    )
    return Instance(
        id=instance,
        model=card,
        sharding=options.sharding,
        transport=options.transport,
        shards=(shard,),
        context_length=need.context_length,
        placed_at=now,
    )


def _preview(answer: Instance | Unplaceable, options: PlaceOptions) -> Preview:
    if isinstance(answer, Unplaceable):
        return Preview(
            sharding=options.sharding, transport=options.transport, nodes=options.min_nodes, unplaceable=answer
        )
    return Preview(
        sharding=options.sharding,
        transport=options.transport,
        nodes=len(answer.shards),
        instance=answer,
        memory_by_node={shard.node: shard.memory_bytes for shard in answer.shards},
    )
