"""Fold one event into State. Pure and total: it never raises, never reads a clock.

Every projection calls it, for each event of the log in order.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec.structs import replace

from exo.streams import events as e
from exo.streams.codes import Code
from exo.streams.ids import InstanceId, ModelId, NodeId, RunnerId, TaskId
from exo.streams.instances import Instance, RemovedInstance, RunnerRecord, Starting
from exo.streams.keys import ApiKey
from exo.streams.merges import Merge, add_report
from exo.streams.models import ModelCard
from exo.streams.nodes import NodeRecord, RunnerReport
from exo.streams.state import KEPT_MERGES, KEPT_REMOVED_INSTANCES, KEPT_SESSIONS, Receipt, State
from exo.streams.tasks import EndedTask, Outcome, TaskRecord


def apply(state: State, recorded: e.Recorded) -> State:
    """Give the State after this event."""
    envelope = recorded.envelope
    if envelope is None:
        return replace(state, applied=recorded.sequence, unknown_events=state.unknown_events + 1)
    event = envelope.event
    kind = type(event)
    if kind in _FACT_KINDS and not _is_current(state, envelope, cast("e.Fact", event)):
        return replace(state, applied=recorded.sequence, ignored_events=state.ignored_events + 1)
    after = _FOLDS[kind](state, event, envelope)
    if envelope.cause is None:
        return replace(after, applied=recorded.sequence)
    receipts = after.receipts.add(envelope.cause, _make_receipt(event, recorded.sequence))
    return replace(after, applied=recorded.sequence, receipts=receipts)


def _is_current(state: State, envelope: e.Envelope, fact: e.Fact) -> bool:
    if envelope.actor != fact.node:
        return False
    kind = type(fact)
    if kind is e.NodeJoined:
        return True
    node = state.nodes.get(fact.node)
    if node is None or node.boot != envelope.boot:
        return False
    if isinstance(fact, e.RunnerStatusChanged):
        runner = state.runners.get(fact.runner)
        return runner is not None and runner.node == fact.node
    if isinstance(fact, e.TaskFinished | e.TaskFailed):
        task = state.tasks.get(fact.task)
        return task is not None and task.node == fact.node
    return True


def _make_receipt(event: e.Event, sequence: int) -> Receipt:
    if type(event) is e.CommandRejected:
        return Receipt(outcome="rejected", sequence=sequence, code=event.code, reason=event.reason)
    return Receipt(outcome="accepted", sequence=sequence, subject_id=_about(event))


def _about(event: e.Event) -> str:
    match event:
        case e.InstancePlaced(instance=Instance(id=identifier)) | e.TaskAssigned(task=TaskRecord(id=identifier)):
            return identifier
        case e.InstanceRemoved(instance=identifier) | e.CommandAnswered(instance=identifier):
            return identifier
        case e.TaskCancelled(task=identifier):
            return identifier
        case e.ModelCardAdded(card=ModelCard(model_id=identifier)) | e.ModelCardDeleted(model=identifier):
            return identifier
        case (
            e.ApiKeyAdded(key=ApiKey(id=identifier)) | e.ApiKeyRevoked(key=identifier) | e.NodeDraining(node=identifier)
        ):
            return identifier
        case _:
            return ""


def _keep(state: State, _event: e.CommandRejected | e.CommandAnswered, _envelope: e.Envelope) -> State:
    return state


def _start_epoch(state: State, event: e.EpochStarted, _envelope: e.Envelope) -> State:
    lineage = state.lineage
    if state.session and event.session != state.session:
        lineage = (*lineage, state.session)[-KEPT_SESSIONS:]
    return replace(state, session=event.session, lineage=lineage, epoch=event.epoch, master=event.master)


def _assign_task(state: State, event: e.TaskAssigned, _envelope: e.Envelope) -> State:
    return replace(state, tasks={**state.tasks, event.task.id: event.task})


def _end_task(task: TaskRecord, outcome: Outcome, *, code: str, message: str, at: int) -> EndedTask:
    return EndedTask(
        id=task.id,
        outcome=outcome,
        model=task.model,
        instance=task.instance,
        node=task.node,
        code=code,
        message=message,
        ended_at=at,
    )


def _move_to_ended(state: State, ended: EndedTask) -> State:
    tasks = {task_id: task for task_id, task in state.tasks.items() if task_id != ended.id}
    return replace(state, tasks=tasks, ended_tasks=state.ended_tasks.add(ended.id, ended))


def _finish_task(state: State, event: e.TaskFinished, envelope: e.Envelope) -> State:
    ended = _end_task(state.tasks[event.task], "finished", code="", message="", at=envelope.at)
    return _move_to_ended(state, replace(ended, last_index=event.last_index, usage=event.usage))


def _fail_task(state: State, event: e.TaskFailed, envelope: e.Envelope) -> State:
    task = state.tasks[event.task]
    outcome: Outcome = "cancelled" if event.code == Code.CANCELLED else "failed"
    ended = _end_task(task, outcome, code=event.code, message=event.message, at=envelope.at)
    return _move_to_ended(state, replace(ended, last_index=event.last_index))


def _cancel_task(state: State, event: e.TaskCancelled, envelope: e.Envelope) -> State:
    task = state.tasks.get(event.task)
    if task is not None:
        ended = _end_task(task, "cancelled", code=Code.CANCELLED, message=event.reason, at=envelope.at)
        return _move_to_ended(state, ended)
    if state.ended_tasks.get(event.task) is not None:
        return state
    tombstone = EndedTask(
        id=event.task,
        outcome="cancelled",
        model=ModelId(""),
        instance=InstanceId(""),
        node=NodeId(""),
        code=Code.CANCELLED,
        message=event.reason,
        ended_at=envelope.at,
    )
    return replace(state, ended_tasks=state.ended_tasks.add(event.task, tombstone))


def _fail_tasks(state: State, event: e.TasksFailed, envelope: e.Envelope) -> State:
    return _end_tasks(state, event.tasks, code=event.code, message=event.message, at=envelope.at)


def _end_tasks(state: State, tasks: tuple[TaskId, ...], *, code: str, message: str, at: int) -> State:
    for task_id in tasks:
        task = state.tasks.get(task_id)
        if task is not None:
            state = _move_to_ended(state, _end_task(task, "failed", code=code, message=message, at=at))
    return state


def _place_instance(state: State, event: e.InstancePlaced, envelope: e.Envelope) -> State:
    instance = event.instance
    strays = {report.runner: report for node in state.nodes.values() for report in node.strays}
    runners = {
        shard.runner: RunnerRecord(
            id=shard.runner,
            instance=instance.id,
            node=shard.node,
            rank=shard.rank,
            status=strays[shard.runner].status if shard.runner in strays else Starting(),
            since=envelope.at,
        )
        for shard in instance.shards
    }
    return replace(
        state,
        nodes=_adopt(state, runners) if strays else state.nodes,
        instances={**state.instances, instance.id: instance},
        runners={**state.runners, **runners},
    )


def _adopt(state: State, runners: Mapping[RunnerId, RunnerRecord]) -> dict[NodeId, NodeRecord]:
    """Give the nodes without those strays that belong to an instance now."""
    return {
        key: replace(node, strays=tuple(report for report in node.strays if report.runner not in runners))
        for key, node in state.nodes.items()
    }


def _remove_instance(state: State, event: e.InstanceRemoved, envelope: e.Envelope) -> State:
    instance = state.instances.get(event.instance)
    if instance is None:
        return state
    removed = RemovedInstance(
        id=instance.id,
        model_id=instance.model.model_id,
        code=event.code,
        reason=event.reason,
        evidence=event.evidence,
        removed_at=envelope.at,
    )
    state = _end_tasks(
        state,
        _tasks_of(state, event.instance),
        code=Code.INSTANCE_REMOVED,
        message=event.reason,
        at=envelope.at,
    )
    return replace(
        state,
        instances={key: value for key, value in state.instances.items() if key != instance.id},
        runners={key: value for key, value in state.runners.items() if value.instance != instance.id},
        removed_instances=(*state.removed_instances, removed)[-KEPT_REMOVED_INSTANCES:],
    )


def _tasks_of(state: State, instance: InstanceId) -> tuple[TaskId, ...]:
    return tuple(task.id for task in state.tasks.values() if task.instance == instance)


def _change_node(state: State, node: NodeRecord) -> State:
    return replace(state, nodes={**state.nodes, node.id: node})


def _join_node(state: State, event: e.NodeJoined, envelope: e.Envelope) -> State:
    known = state.nodes.get(event.node)
    node = NodeRecord(
        id=event.node,
        boot=envelope.boot,
        facts=event.facts,
        online=True,
        since=envelope.at,
        models=known.models if known else (),
        draining=known is not None and known.draining and known.boot == envelope.boot,
    )
    state = _change_node(state, node)
    if known is not None and known.boot == envelope.boot:
        return state
    restarted = {
        key: replace(runner, status=Starting(), since=envelope.at) if runner.node == event.node else runner
        for key, runner in state.runners.items()
    }
    return replace(state, runners=restarted)


def _reconcile_node(state: State, event: e.NodeReported, envelope: e.Envelope) -> State:
    reported = {report.runner: report.status for report in event.runners}
    runners = {
        key: replace(runner, status=reported.get(key, Starting()), since=envelope.at)
        if runner.node == event.node and runner.status != reported.get(key, Starting())
        else runner
        for key, runner in state.runners.items()
    }
    strays: tuple[RunnerReport, ...] = tuple(report for report in event.runners if report.runner not in runners)
    node = replace(state.nodes[event.node], models=event.models, strays=strays)
    return _change_node(replace(state, runners=runners), node)


def _merge_session(state: State, event: e.SessionMerged, envelope: e.Envelope) -> State:
    known = next((merge for merge in state.merges if merge.session == event.session), None)
    merge = add_report(
        known or Merge(session=event.session, at=envelope.at),
        adopted=event.adopted,
        dropped=event.dropped,
        at=envelope.at,
    )
    others = tuple(one for one in state.merges if one.session != event.session)
    return replace(state, merges=(*others, merge)[-KEPT_MERGES:])


def _report_models(state: State, event: e.ModelsReported, _envelope: e.Envelope) -> State:
    return _change_node(state, replace(state.nodes[event.node], models=event.models))


def _change_runner(state: State, event: e.RunnerStatusChanged, envelope: e.Envelope) -> State:
    runner = replace(state.runners[event.runner], status=event.status, since=envelope.at)
    return replace(state, runners={**state.runners, event.runner: runner})


def _measure_links(state: State, event: e.LinksMeasured, _envelope: e.Envelope) -> State:
    return replace(state, links={**state.links, event.node: event.links})


def _observe_thunderbolt(state: State, event: e.ThunderboltObserved, _envelope: e.Envelope) -> State:
    return replace(state, thunderbolt={**state.thunderbolt, event.node: event.thunderbolt})


def _add_card(state: State, event: e.ModelCardAdded, _envelope: e.Envelope) -> State:
    return replace(state, cards={**state.cards, event.card.model_id: event.card})


def _delete_card(state: State, event: e.ModelCardDeleted, _envelope: e.Envelope) -> State:
    return replace(state, cards={key: card for key, card in state.cards.items() if key != event.model})


def _add_key(state: State, event: e.ApiKeyAdded, _envelope: e.Envelope) -> State:
    return replace(state, api_keys={**state.api_keys, event.key.id: event.key})


def _revoke_key(state: State, event: e.ApiKeyRevoked, _envelope: e.Envelope) -> State:
    return replace(state, api_keys={key: value for key, value in state.api_keys.items() if key != event.key})


def _drain_node(state: State, event: e.NodeDraining, _envelope: e.Envelope) -> State:
    node = state.nodes.get(event.node)
    return state if node is None else _change_node(state, replace(node, draining=event.draining))


def _leave(state: State, event: e.NodeLeft, envelope: e.Envelope) -> State:
    return _take_offline(state, event.node, cause="left", at=envelope.at)


def _time_out(state: State, event: e.NodeTimedOut, envelope: e.Envelope) -> State:
    return _take_offline(state, event.node, cause="timed_out", at=envelope.at)


def _take_offline(state: State, node_id: NodeId, *, cause: str, at: int) -> State:
    node = state.nodes.get(node_id)
    if node is None:
        return state
    return _change_node(state, replace(node, online=False, cause=cause, since=at))


_FACT_KINDS = frozenset(e.FACTS)
"""Looked up instead of `isinstance`, which costs 1.5 us over a union of structs."""

_FOLDS: dict[type[e.Event], Callable[[State, Any, e.Envelope], State]] = {
    e.EpochStarted: _start_epoch,
    e.InstancePlaced: _place_instance,
    e.InstanceRemoved: _remove_instance,
    e.TaskAssigned: _assign_task,
    e.TaskCancelled: _cancel_task,
    e.TasksFailed: _fail_tasks,
    e.CommandRejected: _keep,
    e.CommandAnswered: _keep,
    e.ModelCardAdded: _add_card,
    e.ModelCardDeleted: _delete_card,
    e.ApiKeyAdded: _add_key,
    e.ApiKeyRevoked: _revoke_key,
    e.NodeDraining: _drain_node,
    e.NodeTimedOut: _time_out,
    e.NodeJoined: _join_node,
    e.NodeReported: _reconcile_node,
    e.NodeLeft: _leave,
    e.SessionMerged: _merge_session,
    e.ModelsReported: _report_models,
    e.RunnerStatusChanged: _change_runner,
    e.TaskFinished: _finish_task,
    e.TaskFailed: _fail_task,
    e.LinksMeasured: _measure_links,
    e.ThunderboltObserved: _observe_thunderbolt,
}
"""A table instead of a `match`: class patterns cost 3 us an event, and 100,000 are folded at a cold
start. A test holds that it names every type of `Event`."""
