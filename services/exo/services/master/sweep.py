"""`sweep`: what the master decides of its own accord, because a node, a runner or a deadline is gone. Pure.

Called again after each of its decisions was folded, until it gives nothing more.
"""

from collections.abc import Iterable, Iterator, Mapping

from exo.streams import events as e
from exo.streams.codes import Code
from exo.streams.ids import BootId, NodeId, TaskId
from exo.streams.instances import Failed
from exo.streams.layout import PRESENCE_TTL
from exo.streams.state import State
from exo.streams.tasks import TaskRecord
from exo.streams.views import find_idle_node

ABSENCE = 2.0 * PRESENCE_TTL
"""Seconds without a presence key after which a node has timed out."""
CERTAINTY = 3.0
"""Seconds after which a node whose process is gone has timed out, whatever its presence key says."""
DEADLINE_SLACK = 5.0
"""Seconds left to rank 0, which judges deadlines itself."""
_MOST_TASKS = 1000
"""In one event, so that it stays small."""


def sweep(
    state: State,
    *,
    absent: Mapping[NodeId, float],
    gone: Mapping[NodeId, float],
    ages: Mapping[TaskId, float],
) -> Iterator[e.Decision]:
    """Give the decisions that are due. `absent` holds the seconds for which each node's presence was missing.

    `gone` holds for how many seconds it was certain of a node that its process is gone.
    `ages` holds for how many seconds this master has known each request that has a time limit.
    """
    yield from _time_out_nodes(state, absent=absent, gone=gone)
    yield from _fail_tasks(state, ages)
    yield from _remove_failed(state)
    yield from _remove_unstartable(state)


def _time_out_nodes(
    state: State, *, absent: Mapping[NodeId, float], gone: Mapping[NodeId, float]
) -> Iterator[e.Decision]:
    for node in state.nodes.values():
        if node.online and (absent.get(node.id, 0) >= ABSENCE or gone.get(node.id, 0) >= CERTAINTY):
            yield e.NodeTimedOut(node=node.id)


def _fail_tasks(state: State, ages: Mapping[TaskId, float]) -> Iterator[e.Decision]:
    groups: dict[tuple[str, str], list[TaskId]] = {}
    for task in state.tasks.values():
        why = _find_failure(state, task, age=ages.get(task.id, 0))
        if why is not None:
            groups.setdefault(why, []).append(task.id)
    for (code, message), tasks in groups.items():
        for some in _cut(tasks):
            yield e.TasksFailed(tasks=some, code=code, message=message)


def _find_failure(state: State, task: TaskRecord, *, age: float) -> tuple[str, str] | None:
    lost = _find_lost(state, task.node, task.boot)
    if lost is not None:
        return lost, f"the node that worked on the request ({_name(state, task.node)}) was {_WHAT_HAPPENED[lost]}"
    if task.on_disconnect == "cancel":
        lost = _find_lost(state, task.gateway, task.gateway_boot)
        if lost is not None:
            return lost, f"the node that took the request ({_name(state, task.gateway)}) was {_WHAT_HAPPENED[lost]}"
    if task.time_limit and age > task.time_limit / 1000 + DEADLINE_SLACK:
        return Code.DEADLINE_EXCEEDED, "the request did not end before its deadline"
    return None


_WHAT_HAPPENED = {Code.NODE_RESTARTED: "restarted", Code.NODE_TIMED_OUT: "lost"}


def _find_lost(state: State, node_id: NodeId, boot: BootId) -> Code | None:
    node = state.nodes.get(node_id)
    if node is None:
        return None
    if node.boot != boot:
        return Code.NODE_RESTARTED
    return None if node.online else Code.NODE_TIMED_OUT


def _name(state: State, node: NodeId) -> str:
    return state.nodes[node].facts.name or node


def _cut(tasks: list[TaskId]) -> Iterable[tuple[TaskId, ...]]:
    return (tuple(tasks[start : start + _MOST_TASKS]) for start in range(0, len(tasks), _MOST_TASKS))


def _remove_failed(state: State) -> Iterator[e.Decision]:
    removed: set[str] = set()
    for runner in state.runners.values():
        status = runner.status
        if isinstance(status, Failed) and status.retry_at == 0 and runner.instance not in removed:
            removed.add(runner.instance)
            reason = f"{status.message} (attempt {status.attempt}, no more are made)"
            yield e.InstanceRemoved(
                instance=runner.instance,
                code=status.code,
                reason=reason,
                evidence=status.evidence,
            )


def _remove_unstartable(state: State) -> Iterator[e.Decision]:
    """Remove what waits for a node that came back without a worker: nobody there starts it, nor says that it failed."""
    for instance in state.instances.values():
        node = find_idle_node(state, instance)
        if node is not None:
            reason = f"node {node.facts.name} runs no models any more (--no-worker)"
            yield e.InstanceRemoved(instance=instance.id, code=Code.UNPLACEABLE, reason=reason)
