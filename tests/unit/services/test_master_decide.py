"""Every command, every answer: `decide` as a table of situations."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from exo.services.catalog.service import Catalog
from exo.services.master.decide import Circumstances, decide
from exo.services.placement.place import Memory
from exo.streams import commands as c
from exo.streams import events as e
from exo.streams.codes import Code
from exo.streams.ids import BootId, CommandId, InstanceId, ModelId, NodeId, RunnerId, TaskId
from exo.streams.instances import Failed, Loading, Ready, RunnerStatus
from exo.streams.nodes import RunnerReport
from exo.streams.state import State
from exo.streams.tasks import TaskRecord
from support.services import (
    BOOT,
    GB,
    MODEL,
    NODE,
    NOW,
    fold,
    joined_state,
    make_card,
    make_instance,
    make_memory,
    make_task,
    ready_state,
)

COMMAND = CommandId("command-1")
CATALOG = Catalog((make_card(), make_card("exo/scripted", architecture="scripted")), aliases={"starter": MODEL})
RUNNER = make_instance().shards[0].runner


def ask(
    kind: Callable[..., c.Command], state: State, *, memory: Memory | None = None, age: int = 0, **fields: Any
) -> e.Decision:
    command = kind(command_id=COMMAND, issued_at=NOW, **fields)
    memory = {NODE: make_memory()} if memory is None else memory
    return decide(command, Circumstances(state, memory, CATALOG, NOW, age))


def place(state: State, *, model: str = MODEL, memory: Memory | None = None, **fields: Any) -> e.Decision:
    values: dict[str, Any] = {"instance": InstanceId("new"), "model": ModelId(model), **fields}
    return ask(c.PlaceInstance, state, memory=memory, **values)


def submit(state: State, *, task: str = "task-9", model: str = MODEL, **fields: Any) -> e.Decision:
    who: dict[str, Any] = {"gateway": NODE, "gateway_boot": BOOT}
    return ask(c.SubmitTask, state, task=TaskId(task), model=ModelId(model), size=1, **who, **fields)


def code_of(decision: e.Decision) -> str:
    assert isinstance(decision, e.CommandRejected), decision
    assert decision.command == COMMAND
    assert decision.reason
    return decision.code


def reason_of(decision: e.Decision) -> str:
    assert isinstance(decision, e.CommandRejected), decision
    return decision.reason


HELD = joined_state(held=(make_card(),))


def test_a_model_is_placed_under_the_id_that_was_asked_for() -> None:
    decision = place(HELD)
    assert isinstance(decision, e.InstancePlaced)
    assert decision.instance.id == "new"
    assert decision.instance.model == make_card()
    assert decision.instance.placed_at == NOW


@pytest.mark.parametrize("name", ["org/small", "ORG/Small", "small", "starter"])
def test_models_are_found_as_people_type_them(name: str) -> None:
    assert isinstance(place(HELD, model=name), e.InstancePlaced)


def test_a_model_that_runs_is_not_placed_twice_when_told_so() -> None:
    decision = place(ready_state(), only_if_absent=True)
    assert decision == e.CommandAnswered(command=COMMAND, instance=InstanceId("instance-1"))
    assert isinstance(place(ready_state()), e.InstancePlaced)


def test_placing_is_refused_with_the_reason_of_placement() -> None:
    assert code_of(place(State())) == Code.UNPLACEABLE
    assert code_of(place(joined_state())) == Code.MODEL_FILES_MISSING
    assert code_of(place(HELD, memory={})) == Code.MEMORY_UNKNOWN
    assert code_of(place(HELD, memory={NODE: make_memory(2.5)})) == Code.INSUFFICIENT_MEMORY
    assert code_of(place(HELD, sharding="Tensor")) == Code.UNPLACEABLE


def test_an_unknown_model_is_refused_with_names_that_are_alike() -> None:
    decision = place(HELD, model="org/smal")
    assert code_of(decision) == Code.MODEL_NOT_FOUND
    assert "did you mean org/small?" in reason_of(decision)
    assert "exo models list" in reason_of(place(HELD, model="zzzz"))


@pytest.mark.parametrize("name", ["instance-1", "Not An Id", ""])
def test_an_instance_id_must_be_free_and_safe(name: str) -> None:
    assert code_of(place(ready_state(), instance=InstanceId(name))) == Code.INVALID_REQUEST


def test_a_previewed_instance_is_placed_unchanged() -> None:
    previewed = place(HELD)
    assert isinstance(previewed, e.InstancePlaced)
    decision = ask(c.CreateInstance, HELD, instance=previewed.instance)
    assert decision == previewed


def test_an_instance_is_not_created_twice_nor_of_an_unknown_model() -> None:
    assert code_of(ask(c.CreateInstance, ready_state(), instance=make_instance())) == Code.INVALID_REQUEST
    stranger = make_instance("other", card=make_card("who/knows"))
    assert code_of(ask(c.CreateInstance, HELD, instance=stranger)) == Code.MODEL_NOT_FOUND


def test_a_client_cannot_understate_what_an_instance_needs() -> None:
    shard = replace(make_instance().shards[0], memory_bytes=0)
    sly = replace(make_instance(), shards=(shard,))
    assert code_of(ask(c.CreateInstance, HELD, memory={NODE: make_memory(2.1)}, instance=sly)) == (
        Code.INSUFFICIENT_MEMORY
    )


def test_an_instance_is_removed_with_its_reason() -> None:
    decision = ask(c.DeleteInstance, ready_state(), instance=InstanceId("instance-1"), reason="enough")
    assert decision == e.InstanceRemoved(instance=InstanceId("instance-1"), code=Code.INSTANCE_REMOVED, reason="enough")
    assert code_of(ask(c.DeleteInstance, HELD, instance=InstanceId("gone"))) == Code.INSTANCE_NOT_FOUND


def test_a_request_goes_to_the_least_busy_ready_instance() -> None:
    second = make_instance("instance-2")
    state = fold(ready_state(tasks=(make_task(),)), e.InstancePlaced(instance=second))
    state = fold(
        state, e.RunnerStatusChanged(node=NODE, runner=second.shards[0].runner, status=state.runners[RUNNER].status)
    )
    decision = submit(state, time_limit=5000, key="k", priority=2, on_disconnect="continue")
    assert isinstance(decision, e.TaskAssigned)
    task = decision.task
    assert (task.instance, task.node, task.boot, task.command) == ("instance-2", NODE, BOOT, COMMAND)
    assert (task.time_limit, task.key, task.priority, task.on_disconnect) == (5000, "k", 2, "continue")


def test_a_request_carries_the_boot_of_the_node_that_will_answer_it() -> None:
    state = fold(ready_state(), e.NodeJoined(node=NODE, facts=HELD.nodes[NODE].facts), boot=BootId("boot-2"))
    ready = e.RunnerStatusChanged(node=NODE, runner=RUNNER, status=ready_state().runners[RUNNER].status)
    decision = submit(fold(state, ready, boot=BootId("boot-2")))
    assert isinstance(decision, e.TaskAssigned)
    assert decision.task.boot == "boot-2"


def test_a_request_for_what_does_not_run_says_what_to_do() -> None:
    assert code_of(submit(HELD)) == Code.MODEL_NOT_RUNNING
    assert "exo place org/small" in reason_of(submit(HELD))
    assert code_of(submit(HELD, model="nonsense")) == Code.MODEL_NOT_FOUND


def test_a_request_for_a_model_that_loads_says_how_far_it_is() -> None:
    placed = fold(HELD, e.InstancePlaced(instance=make_instance()))
    assert code_of(submit(placed)) == Code.MODEL_LOADING
    loading = fold(placed, e.RunnerStatusChanged(node=NODE, runner=RUNNER, status=Loading(3, 30)))
    assert "3 of 30 layers" in reason_of(submit(loading))
    failed = Failed(code=Code.RUNNER_FAILED, message="it broke", retry_at=NOW + 1)
    broken = fold(placed, e.RunnerStatusChanged(node=NODE, runner=RUNNER, status=failed))
    assert "it broke" in reason_of(submit(broken))
    offline = fold(ready_state(), e.NodeTimedOut(node=NODE))
    assert "offline" in reason_of(submit(offline))


def test_a_request_is_taken_once() -> None:
    state = ready_state(tasks=(make_task("task-9"),))
    assert code_of(submit(state)) == Code.TASK_EXISTS
    ended = fold(state, e.TasksFailed(tasks=(TaskId("task-9"),), code="x", message="x"))
    assert code_of(submit(ended)) == Code.TASK_EXISTS


def test_a_request_that_was_cancelled_before_it_came_stays_cancelled() -> None:
    state = fold(ready_state(), e.TaskCancelled(task=TaskId("task-9"), reason="gone"))
    assert code_of(submit(state)) == Code.CANCELLED


def test_a_request_that_is_too_late_is_refused() -> None:
    assert code_of(submit(ready_state(), time_limit=5000, age=5000)) == Code.DEADLINE_EXCEEDED
    in_time = submit(ready_state(), time_limit=5000, age=4000)
    assert isinstance(in_time, e.TaskAssigned)
    assert in_time.task.time_limit == 1000


def test_a_task_id_must_be_safe() -> None:
    assert code_of(submit(ready_state(), task="a.b")) == Code.INVALID_REQUEST
    assert code_of(ask(c.CancelTask, State(), task=TaskId("*"))) == Code.INVALID_REQUEST


def test_cancelling_works_for_running_unknown_and_cancelled_requests() -> None:
    for state in (
        ready_state(tasks=(make_task(),)),
        State(),
        fold(State(), e.TaskCancelled(task=TaskId("task-1"), reason="before")),
    ):
        decision = ask(c.CancelTask, state, task=TaskId("task-1"), reason="stop")
        assert decision == e.TaskCancelled(task=TaskId("task-1"), reason="stop")


def test_cancelling_what_has_ended_says_so() -> None:
    state = fold(ready_state(tasks=(make_task(),)), e.TasksFailed(tasks=(TaskId("task-1"),), code="x", message="x"))
    assert code_of(ask(c.CancelTask, state, task=TaskId("task-1"))) == Code.TASK_NOT_FOUND


def test_custom_cards_come_and_go() -> None:
    card = make_card("me/own")
    decision = ask(c.AddModelCard, State(), card=card)
    assert decision == e.ModelCardAdded(card=replace(card, is_custom=True))
    state = fold(State(), decision)
    assert ask(c.DeleteModelCard, state, model=ModelId("me/own")) == e.ModelCardDeleted(model=ModelId("me/own"))
    assert code_of(ask(c.DeleteModelCard, State(), model=ModelId("me/own"))) == Code.MODEL_NOT_FOUND


@pytest.mark.parametrize("changes", [{"n_layers": 0}, {"model": ""}, {"trust_remote_code": True}])
def test_a_card_that_cannot_work_is_refused(changes: dict[str, Any]) -> None:
    assert code_of(ask(c.AddModelCard, State(), card=make_card(**changes))) == Code.INVALID_REQUEST


def test_a_command_that_waited_too_long_does_nothing() -> None:
    command = c.CancelTask(command_id=COMMAND, issued_at=NOW, ttl=1000, task=TaskId("task-1"))
    # The clocks of the sender and of the master say nothing.
    given = Circumstances(State(), {}, CATALOG, NOW + 3_600_000, age=1001)
    assert code_of(decide(command, given)) == Code.COMMAND_EXPIRED
    assert isinstance(decide(command, replace(given, age=1000)), e.TaskCancelled)


def test_placing_counts_what_other_instances_were_promised() -> None:
    memory = {NODE: make_memory(5)}
    assert isinstance(place(HELD, memory=memory), e.InstancePlaced)
    greedy = replace(make_instance(), shards=(replace(make_instance().shards[0], memory_bytes=3 * GB),))
    crowded = fold(HELD, e.InstancePlaced(instance=greedy))
    assert code_of(place(crowded, memory=memory)) == Code.INSUFFICIENT_MEMORY


def test_a_gateway_on_another_node_is_recorded() -> None:
    command = c.SubmitTask(
        command_id=COMMAND,
        issued_at=NOW,
        task=TaskId("task-9"),
        model=MODEL,
        size=1,
        gateway=NodeId("node-b"),
        gateway_boot=BootId("boot-b"),
    )
    decision = decide(command, Circumstances(ready_state(), {}, CATALOG, NOW))
    assert isinstance(decision, e.TaskAssigned)
    assert (decision.task.gateway, decision.task.gateway_boot) == ("node-b", "boot-b")


def resume(state: State, **fields: Any) -> e.Decision:
    return submit(state, resume_on=make_instance().id, **fields)


def assigned(decision: e.Decision) -> TaskRecord:
    assert isinstance(decision, e.TaskAssigned), decision
    return decision.task


def test_a_request_goes_back_to_the_instance_that_had_it() -> None:
    task = assigned(resume(ready_state(), admitted=True, attempt=3))
    assert (task.instance, task.attempt, task.resumed) == (make_instance().id, 3, True)
    assert not assigned(resume(ready_state())).resumed


def test_a_request_whose_log_was_not_lost_after_all_is_left_as_it_is() -> None:
    state = ready_state(tasks=(make_task("task-9"),))
    assert resume(state) == e.CommandAnswered(command=COMMAND, instance=make_instance().id)


def test_an_admitted_request_is_given_to_no_other_instance() -> None:
    gone = fold(ready_state(), e.InstanceRemoved(instance=make_instance().id, code="x", reason="x"))
    other = fold(gone, e.InstancePlaced(instance=make_instance("instance-2")))
    assert code_of(resume(other, admitted=True)) == Code.CLUSTER_MERGED
    assert code_of(resume(fold(ready_state(), e.NodeLeft(node=NODE)), admitted=True)) == Code.CLUSTER_MERGED


def test_a_request_that_nobody_saw_anything_of_begins_anew_as_a_further_attempt() -> None:
    state = fold(ready_state(), e.InstancePlaced(instance=make_instance("instance-2")))
    state = fold(state, e.RunnerStatusChanged(node=NODE, runner=RunnerId("instance-2-0"), status=Ready()))
    state = fold(state, e.InstanceRemoved(instance=make_instance().id, code="x", reason="x"))
    task = assigned(resume(state, attempt=2))
    assert (task.instance, task.attempt, task.resumed) == ("instance-2", 3, False)


def with_stray(status: RunnerStatus) -> State:
    """A node on which the runner of an instance lives that State does not know."""
    state = joined_state(held=(make_card(),))
    report = RunnerReport(runner=RUNNER, status=status)
    return fold(state, e.NodeReported(node=NODE, runners=(report,), models=state.nodes[NODE].models, tasks=()))


def test_living_runners_are_adopted_without_counting_their_memory_again() -> None:
    tight = {NODE: make_memory(0.1)}
    placed = ask(c.CreateInstance, with_stray(Ready()), instance=make_instance(), memory=tight)
    assert isinstance(placed, e.InstancePlaced)
    state = fold(with_stray(Ready()), placed)
    assert state.runners[RUNNER].status == Ready()
    assert state.nodes[NODE].strays == ()


def test_runners_that_do_not_live_need_room() -> None:
    tight = {NODE: make_memory(0.1)}
    dead = Failed(code="x", message="x")
    for state in (with_stray(dead), joined_state(held=(make_card(),))):
        assert code_of(ask(c.CreateInstance, state, instance=make_instance(), memory=tight)) == (
            Code.INSUFFICIENT_MEMORY
        )


def test_a_request_that_was_lost_is_begun_anew_under_the_same_id() -> None:
    state = ready_state(tasks=(make_task(),))
    lost = fold(state, e.TasksFailed(tasks=(TaskId("task-1"),), code=Code.NODE_TIMED_OUT, message="lost"))
    assert code_of(submit(lost, task="task-1")) == Code.TASK_EXISTS
    again = submit(lost, task="task-1", attempt=2)
    assert isinstance(again, e.TaskAssigned)
    assert again.task.attempt == 2
    # It can be cancelled while it is at work, although it ended once.
    assert isinstance(ask(c.CancelTask, fold(lost, again), task=TaskId("task-1")), e.TaskCancelled)
    failed = fold(state, e.TasksFailed(tasks=(TaskId("task-1"),), code=Code.RUNNER_FAILED, message="it broke"))
    assert code_of(submit(failed, task="task-1", attempt=2)) == Code.TASK_EXISTS
