"""`check`: whether an instance that a client sends can stand as it is. Pure."""

from exo.services.placement.memory import estimate, free_on, in_gb, smallest_form
from exo.services.placement.place import Memory, list_candidates
from exo.streams.codes import Code
from exo.streams.ids import SUBJECT_TOKEN, NodeId
from exo.streams.instances import Instance
from exo.streams.placements import Unplaceable
from exo.streams.state import State
from exo.streams.views import is_adoptable


def check(instance: Instance, *, state: State, memory: Memory) -> Unplaceable | None:
    """Give the reason why an instance cannot be placed exactly so, or None when it can."""
    malformed = _find_malformed(instance)
    if malformed:
        return Unplaceable(code=Code.INVALID_REQUEST, reason=malformed)
    # Runners that live already hold their memory.
    return None if is_adoptable(state, instance) else _find_obstacle(instance, state=state, memory=memory)


def _find_obstacle(instance: Instance, *, state: State, memory: Memory) -> Unplaceable | None:
    candidates = list_candidates(instance.model, state)
    if isinstance(candidates, Unplaceable):
        return candidates
    able = {node.id: node.facts.backends for node in candidates}
    for shard in instance.shards:
        if shard.node not in able:
            return Unplaceable(code=Code.UNPLACEABLE, reason=_say_unable(shard.node, instance, state))
        gauge = memory.get(shard.node)
        if gauge is None:
            return Unplaceable(code=Code.MEMORY_UNKNOWN, reason=f"node {shard.node} has not reported its memory yet")
        free = free_on(state, shard.node, gauge)
        form = smallest_form(able[shard.node])
        least = estimate(instance.model, context_length=instance.context_length, form=form)
        needed = max(shard.memory_bytes, least.total)
        if needed > free:
            missing = in_gb(needed - free)
            reason = f"rank {shard.rank} needs {in_gb(needed)} on node {shard.node}: {missing} are missing"
            return Unplaceable(code=Code.INSUFFICIENT_MEMORY, reason=reason)
    return None


def _say_unable(node: NodeId, instance: Instance, state: State) -> str:
    if node in state.nodes and state.nodes[node].draining:
        return f"node {node} is being drained; `exo drain NODE --undo` takes it back"
    return f"node {node} cannot run {instance.model.model_id}"


def _find_malformed(instance: Instance) -> str:
    identifiers = [instance.id, *(shard.runner for shard in instance.shards)]
    if not all(SUBJECT_TOKEN.match(identifier) for identifier in identifiers):
        return "ids consist of 1 to 64 characters a-z, 0-9 and -"
    if len(instance.shards) != 1:
        return f"this version runs an instance on one node, not as {len(instance.shards)} shards"
    shard = instance.shards[0]
    whole = (shard.rank, shard.world_size, shard.start_layer, shard.end_layer) == (0, 1, 0, instance.model.n_layers)
    if not whole:
        return "the only shard must be rank 0 of 1 with all layers"
    if instance.context_length < 1 or shard.memory_bytes < 0:
        return "context_length must be at least 1 and memory_bytes not negative"
    return ""
