"""What a node does about State, as a table of situations."""

from typing import Any

from msgspec.structs import replace

from exo.services.settings import EngineSettings
from exo.services.worker.actions import (
    CancelTask,
    DisownTask,
    DispatchTask,
    FailTask,
    RepeatEnd,
    StartRunner,
    StopRunner,
)
from exo.services.worker.backoff import delay_before, pause_after
from exo.services.worker.options import build_options
from exo.services.worker.plan import Local, LocalRunner, plan
from exo.streams import events as e
from exo.streams.codes import Code
from exo.streams.ids import BootId, InstanceId, NodeId, TaskId
from exo.streams.instances import Failed, Ready, Starting
from exo.streams.state import State
from support.services import BOOT, GB, NODE, NOW, fold, joined_state, make_card, make_instance, make_task, ready_state

INSTANCE = make_instance()
SHARD = INSTANCE.shards[0]
PLACED = fold(joined_state(held=(make_card(),)), e.InstancePlaced(instance=INSTANCE))
TASK = make_task()
BUSY = ready_state(tasks=(TASK,))


def look(*runners: LocalRunner, **changes: Any) -> Local:
    values: dict[str, Any] = {"node": NODE, "boot": BOOT, **changes}
    return Local(runners={runner.id: runner for runner in runners}, **values)


def runner(status: Any = None, **changes: Any) -> LocalRunner:
    values: dict[str, Any] = {
        "id": SHARD.runner,
        "instance": INSTANCE.id,
        "status": status or Ready(),
        "alive": True,
        **changes,
    }
    return LocalRunner(**values)


def failed(*, is_due: bool = False, retry_at: int = NOW) -> LocalRunner:
    return runner(Failed(code=Code.RUNNER_FAILED, message="broke", retry_at=retry_at), alive=False, is_due=is_due)


def test_nothing_is_done_when_all_is_as_it_should_be() -> None:
    assert plan(State(), look()) == []
    assert plan(PLACED, look(runner(Starting()))) == []
    assert plan(BUSY, look(runner(tasks=frozenset({TASK.id})), known_tasks={(TASK.id, 1)})) == []


def test_a_runner_is_started_for_a_shard_of_this_node() -> None:
    assert plan(PLACED, look()) == [StartRunner(INSTANCE, SHARD)]
    assert plan(PLACED, look(node=NodeId("node-b"))) == []


def test_a_runner_is_started_again_when_its_pause_is_over() -> None:
    assert plan(PLACED, look(failed())) == []
    assert plan(PLACED, look(failed(is_due=True))) == [StartRunner(INSTANCE, SHARD)]


def test_a_runner_that_gave_up_is_not_started_again() -> None:
    assert plan(PLACED, look(failed(retry_at=0))) == []


def test_a_runner_without_an_instance_is_stopped_once() -> None:
    removed = fold(PLACED, e.InstanceRemoved(instance=INSTANCE.id, code="x", reason="x"))
    assert plan(removed, look(runner())) == [StopRunner(SHARD.runner)]
    assert plan(removed, look(runner(stopping=True))) == []


def test_a_request_goes_to_its_ready_runner() -> None:
    assert plan(BUSY, look(runner())) == [DispatchTask(SHARD.runner, TASK)]


def test_a_request_waits_for_a_runner_that_loads() -> None:
    assert plan(BUSY, look(runner(Starting()))) == []


def test_a_request_is_not_given_to_a_runner_that_ends() -> None:
    assert plan(BUSY, look(runner(stopping=True))) == []


def test_a_request_whose_runner_has_failed_fails() -> None:
    assert plan(BUSY, look(failed())) == [FailTask(TASK, Code.RUNNER_FAILED, "broke")]


def test_requests_of_an_earlier_life_or_another_node_are_left_to_the_master() -> None:
    assert plan(BUSY, look(runner(), boot=BootId("boot-2"))) == []
    elsewhere = ready_state(tasks=(make_task(node=NodeId("node-b")),))
    assert plan(elsewhere, look(runner())) == []


def test_a_request_that_was_cancelled_is_dropped() -> None:
    state = fold(BUSY, e.TaskCancelled(task=TASK.id, reason="stop pressed"))
    expected = CancelTask(SHARD.runner, TASK.id, Code.CANCELLED, "stop pressed")
    assert plan(state, look(runner(tasks=frozenset({TASK.id})))) == [expected]


def test_a_request_that_ended_otherwise_is_dropped_with_that_reason() -> None:
    state = fold(BUSY, e.TasksFailed(tasks=(TASK.id,), code=Code.DEADLINE_EXCEEDED, message="too late"))
    expected = CancelTask(SHARD.runner, TASK.id, Code.DEADLINE_EXCEEDED, "too late")
    assert plan(state, look(runner(tasks=frozenset({TASK.id})))) == [expected]


EMPTY = joined_state(held=(make_card(),))
"""State of a session that knows neither the instance nor the request."""
WORKING = runner(tasks=frozenset({TASK.id}))


def test_what_a_new_session_does_not_know_yet_lives_on_for_a_while() -> None:
    assert plan(EMPTY, look(WORKING, is_settling=True)) == []
    cancelled = CancelTask(SHARD.runner, TASK.id, Code.CANCELLED, "the request was cancelled")
    assert plan(EMPTY, look(WORKING)) == [StopRunner(SHARD.runner), cancelled]


def test_what_is_known_to_have_ended_ends_at_once_in_a_new_session_too() -> None:
    removed = fold(PLACED, e.InstanceRemoved(instance=INSTANCE.id, code="x", reason="x"))
    assert plan(removed, look(runner(), is_settling=True)) == [StopRunner(SHARD.runner)]
    ended = fold(BUSY, e.TaskCancelled(task=TASK.id, reason="stop pressed"))
    expected = CancelTask(SHARD.runner, TASK.id, Code.CANCELLED, "stop pressed")
    assert plan(ended, look(WORKING, is_settling=True)) == [expected]


def test_an_end_that_the_log_lost_is_repeated_and_the_request_not_begun_again() -> None:
    known = {(TASK.id, 1)}
    assert plan(BUSY, look(runner(), known_tasks=known, unsaid_ends={TASK.id: 1})) == [RepeatEnd(TASK.id)]
    assert plan(BUSY, look(runner(), known_tasks=known, unsaid_ends={TASK.id: 2})) == []


def test_a_request_that_was_begun_anew_on_another_instance_is_disowned() -> None:
    elsewhere = replace(TASK, instance=InstanceId("instance-2"), attempt=2)
    state = ready_state(tasks=(elsewhere,))
    assert plan(state, look(WORKING, known_tasks={(TASK.id, 1)})) == [DisownTask(SHARD.runner, TASK.id)]


def test_a_further_attempt_is_a_request_of_its_own() -> None:
    again = replace(TASK, attempt=2)
    known = {(TASK.id, 1)}
    assert plan(ready_state(tasks=(again,)), look(runner(), known_tasks=known)) == [DispatchTask(SHARD.runner, again)]


def test_a_request_that_only_an_earlier_life_could_go_on_with_fails() -> None:
    resumed = replace(TASK, resumed=True)
    (action,) = plan(ready_state(tasks=(resumed,)), look(runner()))
    assert isinstance(action, FailTask)
    assert action.code == Code.CLUSTER_MERGED
    assert plan(ready_state(tasks=(resumed,)), look(WORKING, known_tasks={(TASK.id, 1)})) == []


def test_a_burst_is_dispatched_in_one_pass() -> None:
    tasks = tuple(make_task(f"task-{number}") for number in range(500))
    actions = plan(ready_state(tasks=tasks), look(runner(), known_tasks={(TaskId("task-7"), 1)}))
    assert [action.task.id for action in actions if isinstance(action, DispatchTask)] == [
        task.id for task in tasks if task.id != "task-7"
    ]


def test_pauses_double_up_to_a_limit() -> None:
    assert [delay_before(attempt) for attempt in range(2, 8)] == [2, 4, 8, 16, 30, 30]


def test_three_attempts_are_made() -> None:
    assert [pause_after(attempt, most=3) for attempt in (1, 2, 3)] == [2, 4, 0]


def test_dense_weights_are_allowed_where_placement_left_room() -> None:
    tight = build_options(INSTANCE, SHARD, EngineSettings())
    assert (tight.engine, tight.dense_weights, tight.memory_limit) == ("mlx", False, GB)
    wide = build_options(INSTANCE, replace(SHARD, memory_bytes=9 * GB), EngineSettings())
    assert wide.dense_weights is None
    script = {"tokens_per_second": 5.0}
    scripted = replace(INSTANCE, model=make_card(architecture="scripted"))
    options = build_options(scripted, SHARD, EngineSettings(max_batch=3, script=script))
    assert (options.engine, options.max_batch, options.script) == ("scripted", 3, script)
