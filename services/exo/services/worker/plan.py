"""`plan`: what this node must do so that its runners match State. Pure.

Rules in this order: stop, cancel, start, dispatch. It gives all that is due at once, so that a burst
of requests costs one pass over State and not one pass each.
"""

from collections.abc import Iterator

import msgspec

from exo.services.worker.actions import Action, CancelTask, DispatchTask, FailTask, StartRunner, StopRunner
from exo.streams.codes import Code
from exo.streams.ids import BootId, InstanceId, NodeId, RunnerId, TaskId
from exo.streams.instances import Failed, Ready, RunnerStatus
from exo.streams.state import State


class LocalRunner(msgspec.Struct, frozen=True, kw_only=True):
    """A runner as this node knows it, ahead of the log. `tasks` are those it was given and has not ended."""

    id: RunnerId
    status: RunnerStatus
    alive: bool
    """Whether a process exists; False between two attempts."""
    stopping: bool = False
    tasks: frozenset[TaskId] = frozenset()


class Local(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows by itself. `known_tasks` were dispatched or failed already; `now` is Unix time in ms."""

    node: NodeId
    boot: BootId
    now: int
    runners: dict[RunnerId, LocalRunner] = {}
    known_tasks: frozenset[TaskId] | set[TaskId] = frozenset()


def plan(state: State, local: Local) -> list[Action]:
    """Give everything that is due now."""
    return [*_stop(state, local), *_cancel(state, local), *_start(state, local), *_dispatch(state, local)]


def _stop(state: State, local: Local) -> Iterator[Action]:
    for runner in local.runners.values():
        if runner.id not in state.runners and not runner.stopping:
            yield StopRunner(runner.id)


def _cancel(state: State, local: Local) -> Iterator[Action]:
    for runner in local.runners.values():
        for task in runner.tasks:
            if task not in state.tasks:
                ended = state.ended_tasks.get(task)
                code = ended.code if ended and ended.code else Code.CANCELLED
                message = ended.message if ended and ended.message else "the request was cancelled"
                yield CancelTask(runner.id, task, code, message)


def _start(state: State, local: Local) -> Iterator[Action]:
    for instance in state.instances.values():
        for shard in instance.shards:
            if shard.node != local.node:
                continue
            runner = local.runners.get(shard.runner)
            if runner is None or _is_due_again(runner, local.now):
                yield StartRunner(instance, shard)


def _is_due_again(runner: LocalRunner, now: int) -> bool:
    status = runner.status
    return not runner.alive and isinstance(status, Failed) and 0 < status.retry_at <= now


def _dispatch(state: State, local: Local) -> Iterator[Action]:
    leaders = _find_leaders(state, local)
    for task in state.tasks.values():
        if task.node != local.node or task.boot != local.boot or task.id in local.known_tasks:
            continue
        runner = leaders.get(task.instance)
        if runner is None or runner.stopping:
            continue
        if isinstance(runner.status, Ready):
            yield DispatchTask(runner.id, task)
        elif isinstance(runner.status, Failed):
            yield FailTask(task, runner.status.code, runner.status.message)


def _find_leaders(state: State, local: Local) -> dict[InstanceId, LocalRunner]:
    leaders: dict[InstanceId, LocalRunner] = {}
    for instance in state.instances.values():
        shard = instance.rank_zero()
        if shard.node == local.node and shard.runner in local.runners:
            leaders[instance.id] = local.runners[shard.runner]
    return leaders
