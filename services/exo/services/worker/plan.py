"""`plan`: what this node must do so that its runners match State. Pure.

Rules in this order: stop, cancel, start, dispatch. It gives all that is due at once, so that a burst
of requests costs one pass over State and not one pass each.

While the node is settling into a new session, State may lack what comes back in a moment: an instance
that a merge re-places, a request that its gateway submits again. What State has no end of lives on then.
"""

from collections.abc import Container, Iterator, Mapping

import msgspec

from exo.services.worker.actions import (
    Action,
    CancelTask,
    DisownTask,
    DispatchTask,
    FailTask,
    RepeatEnd,
    StartRunner,
    StopRunner,
)
from exo.streams.codes import Code
from exo.streams.ids import BootId, InstanceId, NodeId, RunnerId, TaskId
from exo.streams.instances import Failed, Ready, RunnerStatus
from exo.streams.state import State

Attempt = tuple[TaskId, int]


class LocalRunner(msgspec.Struct, frozen=True, kw_only=True):
    """A runner as this node knows it, ahead of the log. `tasks` are those it was given and has not ended."""

    id: RunnerId
    instance: InstanceId
    status: RunnerStatus
    alive: bool
    """Whether a process exists; False between two attempts."""
    stopping: bool = False
    is_due: bool = False
    """Whether a failed one has waited long enough to be started again."""
    tasks: frozenset[TaskId] = frozenset()


class Local(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows by itself."""

    node: NodeId
    boot: BootId
    runners: dict[RunnerId, LocalRunner] = {}
    known_tasks: Container[Attempt] = ()
    """What this process life has dispatched or failed."""
    unsaid_ends: Mapping[TaskId, int] = {}
    """Requests that have ended here, by their attempt, as far as the log may not know of it."""
    is_settling: bool = False
    """Whether the session is so new that instances and requests may still come back."""


def plan(state: State, local: Local) -> list[Action]:
    """Give everything that is due now."""
    return [*_stop(state, local), *_cancel(state, local), *_start(state, local), *_dispatch(state, local)]


def _stop(state: State, local: Local) -> Iterator[Action]:
    for runner in local.runners.values():
        if runner.id in state.runners or runner.stopping:
            continue
        if local.is_settling and all(removed.id != runner.instance for removed in state.removed_instances):
            continue
        yield StopRunner(runner.id)


def _cancel(state: State, local: Local) -> Iterator[Action]:
    for runner in local.runners.values():
        for task in runner.tasks:
            record = state.tasks.get(task)
            if record is None:
                yield from _cancel_one(runner, task, state=state, local=local)
            elif record.instance != runner.instance:
                yield DisownTask(runner.id, task)


def _cancel_one(runner: LocalRunner, task: TaskId, *, state: State, local: Local) -> Iterator[Action]:
    ended = state.ended_tasks.get(task)
    if ended is None and local.is_settling:
        return
    code = ended.code if ended and ended.code else Code.CANCELLED
    message = ended.message if ended and ended.message else "the request was cancelled"
    yield CancelTask(runner.id, task, code, message)


def _start(state: State, local: Local) -> Iterator[Action]:
    for instance in state.instances.values():
        for shard in instance.shards:
            if shard.node != local.node:
                continue
            runner = local.runners.get(shard.runner)
            if runner is None or (not runner.alive and runner.is_due):
                yield StartRunner(instance, shard)


def _dispatch(state: State, local: Local) -> Iterator[Action]:
    leaders = _find_leaders(state, local)
    for task in state.tasks.values():
        if task.node != local.node or task.boot != local.boot:
            continue
        if local.unsaid_ends.get(task.id) == task.attempt:
            yield RepeatEnd(task.id)
        if (task.id, task.attempt) in local.known_tasks:
            continue
        if task.resumed:
            yield FailTask(task, Code.CLUSTER_MERGED, "the runner that worked on the request is gone; send it again")
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
