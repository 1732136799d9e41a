"""`decide`: one command becomes one event. Pure.

The master's loop calls it with the State that holds every earlier decision.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from exo.services.catalog.service import Catalog
from exo.services.placement.check import check
from exo.services.placement.place import Memory, PlaceOptions, place
from exo.streams import commands as c
from exo.streams import events as e
from exo.streams.codes import Code
from exo.streams.ids import SUBJECT_TOKEN, CommandId, ModelId, NodeId
from exo.streams.instances import Instance, Loading
from exo.streams.placements import Unplaceable
from exo.streams.state import State
from exo.streams.tasks import EndedTask, TaskRecord
from exo.streams.views import failure_of, instances_of, is_lost, is_online, least_busy_instance, runners_of

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Circumstances(msgspec.Struct, frozen=True):
    """What a decision rests on beside the command. `now` is Unix time in ms, for records only."""

    state: State
    memory: Memory
    catalog: Catalog
    now: int
    age: int = 0
    """Milliseconds that the command lay in the queue."""
    unheard: frozenset[NodeId] = frozenset()
    """Nodes that count as online although nothing has come from them lately."""


def decide(command: c.Command, given: Circumstances) -> e.Decision:
    """Give the one event that answers a command; `CommandRejected` when it changes nothing."""
    if given.age > command.ttl:
        late = (given.age - command.ttl) / 1000
        return reject(command.command_id, Code.COMMAND_EXPIRED, f"the command came {late:.1f} s too late; send it anew")
    return _DECIDERS[type(command)](command, given)


def reject(command: CommandId, code: str, reason: str) -> e.CommandRejected:
    """Refuse a command."""
    return e.CommandRejected(command=command, code=code, reason=reason)


def _place_instance(command: c.PlaceInstance, given: Circumstances) -> e.Decision:
    card = given.catalog.find_card(command.model, given.state)
    if card is None:
        return _reject_unknown_model(command.command_id, command.model, given)
    if not SUBJECT_TOKEN.match(command.instance) or command.instance in given.state.instances:
        return reject(command.command_id, Code.INVALID_REQUEST, f"instance id {command.instance!r} is not a free id")
    running = instances_of(given.state, card.model_id)
    if command.only_if_absent and running:
        return e.CommandAnswered(command=command.command_id, instance=running[0].id)
    options = PlaceOptions(
        sharding=command.sharding,
        transport=command.transport,
        min_nodes=command.min_nodes,
        context_length=command.context_length,
    )
    placed = place(
        card,
        instance=command.instance,
        state=given.state,
        memory=given.memory,
        options=options,
        now=given.now,
    )
    if isinstance(placed, Unplaceable):
        return reject(command.command_id, placed.code, placed.reason)
    return e.InstancePlaced(instance=placed)


def _create_instance(command: c.CreateInstance, given: Circumstances) -> e.Decision:
    instance = command.instance
    if instance.id in given.state.instances:
        reason = f"instance {instance.id} exists already; ask for new previews"
        return reject(command.command_id, Code.INVALID_REQUEST, reason)
    card = given.catalog.find_card(instance.model.model_id, given.state)
    if card is None:
        return _reject_unknown_model(command.command_id, instance.model.model_id, given)
    instance = replace(instance, model=card, placed_at=given.now)
    refused = check(instance, state=given.state, memory=given.memory)
    if refused is not None:
        return reject(command.command_id, refused.code, refused.reason)
    return e.InstancePlaced(instance=instance)


def _delete_instance(command: c.DeleteInstance, given: Circumstances) -> e.Decision:
    if command.instance not in given.state.instances:
        return reject(command.command_id, Code.INSTANCE_NOT_FOUND, f"no instance {command.instance} is placed")
    return e.InstanceRemoved(instance=command.instance, code=Code.INSTANCE_REMOVED, reason=command.reason)


def _submit_task(command: c.SubmitTask, given: Circumstances) -> e.Decision:
    if not SUBJECT_TOKEN.match(command.task):
        return reject(command.command_id, Code.INVALID_REQUEST, f"{command.task!r} is not a task id")
    running = given.state.tasks.get(command.task)
    if running is not None and command.resume_on:
        return e.CommandAnswered(command=command.command_id, instance=running.instance)
    if running is not None:
        return reject(command.command_id, Code.TASK_EXISTS, f"request {command.task} is running already")
    ended = given.state.ended_tasks.get(command.task)
    if ended is not None and not (command.attempt > 1 and is_lost(given.state, ended)):
        return _reject_ended(command, ended)
    if command.time_limit and command.time_limit <= given.age:
        return reject(command.command_id, Code.DEADLINE_EXCEEDED, "the deadline had passed before the request started")
    return _resume_task(command, given) if command.resume_on else _start_task(command, given)


def _resume_task(command: c.SubmitTask, given: Circumstances) -> e.Decision:
    """Give a request back to the instance that had it when the log that said so was lost."""
    instance = given.state.instances.get(command.resume_on)
    if instance is not None and is_online(given.state, instance.rank_zero().node):
        return e.TaskAssigned(task=replace(_assign(command, instance, given), resumed=command.admitted))
    if command.admitted:
        reason = (
            f"the cluster has joined another one, where instance {command.resume_on}, "
            "which worked on the request, does not run; send the request again"
        )
        return reject(command.command_id, Code.CLUSTER_MERGED, reason)
    # Nothing of the answer was seen: chunks that come late belong to the attempt before.
    return _start_task(replace(command, attempt=command.attempt + 1), given)


def _start_task(command: c.SubmitTask, given: Circumstances) -> e.Decision:
    model = _resolve(command.model, given)
    instance = least_busy_instance(given.state, model, unheard=given.unheard)
    if instance is None:
        return _reject_not_ready(command, model, given)
    return e.TaskAssigned(task=_assign(command, instance, given))


def _assign(command: c.SubmitTask, instance: Instance, given: Circumstances) -> TaskRecord:
    node = given.state.nodes[instance.rank_zero().node]
    return TaskRecord(
        id=command.task,
        command=command.command_id,
        model=instance.model.model_id,
        instance=instance.id,
        node=node.id,
        boot=node.boot,
        gateway=command.gateway,
        gateway_boot=command.gateway_boot,
        attempt=command.attempt,
        key=command.key,
        priority=command.priority,
        on_disconnect=command.on_disconnect,
        assigned_at=given.now,
        time_limit=command.time_limit - given.age if command.time_limit else 0,
    )


def _resolve(model: ModelId, given: Circumstances) -> ModelId:
    if instances_of(given.state, model):
        return model
    card = given.catalog.find_card(model, given.state)
    return card.model_id if card is not None else model


def _reject_ended(command: c.SubmitTask, ended: EndedTask) -> e.Decision:
    if ended.outcome == "cancelled" and not ended.instance:
        return reject(command.command_id, Code.CANCELLED, f"request {command.task} was cancelled before it started")
    return reject(command.command_id, Code.TASK_EXISTS, f"request {command.task} has ended already")


def _reject_not_ready(command: c.SubmitTask, model: ModelId, given: Circumstances) -> e.Decision:
    placed = instances_of(given.state, model)
    if placed:
        return reject(command.command_id, Code.MODEL_LOADING, _describe_progress(placed[0], given))
    if given.catalog.find_card(model, given.state) is None:
        return _reject_unknown_model(command.command_id, model, given)
    reason = f"{model} is known but not running; start it with `exo place {model}`"
    return reject(command.command_id, Code.MODEL_NOT_RUNNING, reason)


def _describe_progress(instance: Instance, given: Circumstances) -> str:
    model = instance.model.model_id
    failure = failure_of(given.state, instance.id)
    if failure is not None:
        return f"{model} failed ({failure.message}) and is being started again; try again shortly"
    for runner in runners_of(given.state, instance.id):
        if isinstance(runner.status, Loading):
            progress = f"{runner.status.layers_loaded} of {runner.status.total_layers} layers"
            return f"{model} is still loading ({progress}); try again shortly"
    offline = [shard.node for shard in instance.shards if not given.state.nodes[shard.node].online]
    if offline:
        return f"{model} waits for node {offline[0]}, which is offline"
    return f"{model} is still starting; try again shortly"


def _reject_unknown_model(command: CommandId, model: str, given: Circumstances) -> e.Decision:
    alike = given.catalog.suggest(model, given.state)
    hint = f"did you mean {' or '.join(alike)}?" if alike else "`exo models list` shows what there is"
    return reject(command, Code.MODEL_NOT_FOUND, f"no model named {model!r} is known; {hint}")


def _cancel_task(command: c.CancelTask, given: Circumstances) -> e.Decision:
    if not SUBJECT_TOKEN.match(command.task):
        return reject(command.command_id, Code.INVALID_REQUEST, f"{command.task!r} is not a task id")
    ended = given.state.ended_tasks.get(command.task)
    if ended is not None and ended.outcome != "cancelled" and command.task not in given.state.tasks:
        return reject(command.command_id, Code.TASK_NOT_FOUND, f"request {command.task} has {ended.outcome} already")
    return e.TaskCancelled(task=command.task, reason=command.reason)


def _add_card(command: c.AddModelCard, _given: Circumstances) -> e.Decision:
    card = command.card
    if not card.model_id or card.n_layers < 1 or card.trust_remote_code:
        reason = "a card needs a model_id and at least one layer, and must not ask for remote code"
        return reject(command.command_id, Code.INVALID_REQUEST, reason)
    return e.ModelCardAdded(card=replace(card, is_custom=True))


def _delete_card(command: c.DeleteModelCard, given: Circumstances) -> e.Decision:
    if command.model not in given.state.cards:
        return reject(command.command_id, Code.MODEL_NOT_FOUND, f"no custom card named {command.model!r} is known")
    return e.ModelCardDeleted(model=command.model)


def _add_key(command: c.AddApiKey, given: Circumstances) -> e.Decision:
    key = command.key
    malformed = not SUBJECT_TOKEN.match(key.id) or not _SHA256.fullmatch(key.sha256) or not key.name or not key.scopes
    if malformed or key.id in given.state.api_keys:
        reason = "a key needs a free id, a name, at least one scope and a SHA-256 in hex"
        return reject(command.command_id, Code.INVALID_REQUEST, reason)
    return e.ApiKeyAdded(key=replace(key, created_at=given.now))


def _revoke_key(command: c.RevokeApiKey, given: Circumstances) -> e.Decision:
    if command.key not in given.state.api_keys:
        reason = f"no API key {command.key!r} is admitted; `exo keys list` shows all"
        return reject(command.command_id, Code.KEY_NOT_FOUND, reason)
    return e.ApiKeyRevoked(key=command.key)


def _drain_node(command: c.DrainNode, given: Circumstances) -> e.Decision:
    node = given.state.nodes.get(command.node)
    if node is None:
        return reject(command.command_id, Code.NODE_NOT_FOUND, f"no node {command.node!r} has joined; see `exo status`")
    return e.NodeDraining(node=command.node, draining=command.on)


_DECIDERS: dict[type[c.Command], Callable[[Any, Circumstances], e.Decision]] = {
    c.PlaceInstance: _place_instance,
    c.CreateInstance: _create_instance,
    c.DeleteInstance: _delete_instance,
    c.SubmitTask: _submit_task,
    c.CancelTask: _cancel_task,
    c.AddModelCard: _add_card,
    c.DeleteModelCard: _delete_card,
    c.AddApiKey: _add_key,
    c.RevokeApiKey: _revoke_key,
    c.DrainNode: _drain_node,
}
