"""What the master decides of its own accord."""

from exo.services.master.sweep import ABSENCE, CERTAINTY, DEADLINE_SLACK, sweep
from exo.streams import events as e
from exo.streams.codes import Code
from exo.streams.ids import BootId, NodeId, TaskId
from exo.streams.instances import Failed
from exo.streams.state import State
from support.services import BOOT, NODE, NOW, fold, joined_state, make_facts, make_instance, make_task, ready_state

OTHER = NodeId("node-b")
TASK = TaskId("task-1")


def due(state: State, *, absent: float = 0, gone: float = 0, age: float = 0) -> list[e.Decision]:
    ages = dict.fromkeys(state.tasks, age)
    return list(sweep(state, absent={NODE: absent}, gone={NODE: gone}, ages=ages))


def failure(state: State, *, age: float = 0) -> tuple[tuple[TaskId, ...], str]:
    (decision,) = due(state, age=age)
    assert isinstance(decision, e.TasksFailed)
    return decision.tasks, decision.code


def test_nothing_is_due_while_all_is_well() -> None:
    assert due(ready_state(tasks=(make_task(),))) == []
    assert due(State()) == []


def test_a_node_times_out_after_two_lifetimes_of_its_presence() -> None:
    assert due(joined_state(), absent=ABSENCE - 0.1) == []
    assert due(joined_state(), absent=ABSENCE) == [e.NodeTimedOut(node=NODE)]


def test_a_node_that_is_gone_for_certain_times_out_soon() -> None:
    assert due(joined_state(), gone=CERTAINTY - 0.1) == []
    assert due(joined_state(), gone=CERTAINTY) == [e.NodeTimedOut(node=NODE)]


def test_the_end_of_a_request_names_the_lost_node() -> None:
    state = fold(ready_state(tasks=(make_task(),)), e.NodeTimedOut(node=NODE))
    (decision,) = due(state)
    assert isinstance(decision, e.TasksFailed)
    assert decision.message == f"the node that worked on the request ({state.nodes[NODE].facts.name}) was lost"


def test_a_node_that_is_offline_does_not_time_out_again() -> None:
    assert due(fold(joined_state(), e.NodeLeft(node=NODE)), absent=100) == []


def test_requests_of_a_restarted_node_fail() -> None:
    state = ready_state(tasks=(make_task(), make_task("task-2", boot=BootId("boot-2"))))
    restarted = fold(state, e.NodeJoined(node=NODE, facts=make_facts()), boot=BootId("boot-2"))
    assert failure(fold(restarted, e.TaskCancelled(task=TaskId("task-2"), reason=""))) == (
        (TASK,),
        Code.NODE_RESTARTED,
    )


def test_requests_of_a_lost_node_fail() -> None:
    state = fold(ready_state(tasks=(make_task(),)), e.NodeTimedOut(node=NODE))
    assert failure(state) == ((TASK,), Code.NODE_TIMED_OUT)


def test_requests_of_a_gateway_that_was_restarted_or_lost_fail() -> None:
    task = make_task(gateway=OTHER)
    state = joined_state(node=OTHER, state=ready_state(tasks=(task,)))
    assert due(state) == []
    restarted = fold(state, e.NodeJoined(node=OTHER, facts=make_facts()), boot=BootId("boot-2"))
    assert failure(restarted) == ((TASK,), Code.NODE_RESTARTED)
    assert failure(fold(state, e.NodeTimedOut(node=OTHER))) == ((TASK,), Code.NODE_TIMED_OUT)


def test_requests_that_shall_continue_outlive_their_gateway() -> None:
    task = make_task(gateway=OTHER, on_disconnect="continue")
    state = joined_state(node=OTHER, state=ready_state(tasks=(task,)))
    assert due(fold(state, e.NodeTimedOut(node=OTHER))) == []


def test_rank_zero_judges_deadlines_first() -> None:
    state = ready_state(tasks=(make_task(time_limit=2000),))
    assert due(state, age=2 + DEADLINE_SLACK) == []
    assert failure(state, age=2.1 + DEADLINE_SLACK) == ((TASK,), Code.DEADLINE_EXCEEDED)


def test_requests_with_one_fate_share_an_event() -> None:
    tasks = tuple(make_task(f"task-{number}") for number in range(2500))
    state = fold(ready_state(tasks=tasks), e.NodeTimedOut(node=NODE))
    decisions = due(state)
    sizes = [len(decision.tasks) for decision in decisions if isinstance(decision, e.TasksFailed)]
    assert sizes == [1000, 1000, 500]


def test_an_instance_whose_runner_gave_up_is_removed_with_the_evidence() -> None:
    instance = make_instance()
    failed = Failed(code=Code.RUNNER_FAILED, message="killed by SIGKILL", evidence=("last words",), attempt=3)
    changed = e.RunnerStatusChanged(node=NODE, runner=instance.shards[0].runner, status=failed)
    (decision,) = due(fold(ready_state(), changed))
    assert isinstance(decision, e.InstanceRemoved)
    assert (decision.instance, decision.code, decision.evidence) == (instance.id, "runner_failed", ("last words",))
    assert "killed by SIGKILL" in decision.reason
    assert "3" in decision.reason


def test_an_instance_whose_runner_will_be_started_again_stays() -> None:
    failed = Failed(code=Code.RUNNER_FAILED, message="killed", attempt=1, retry_at=NOW + 2000)
    changed = e.RunnerStatusChanged(node=NODE, runner=make_instance().shards[0].runner, status=failed)
    assert due(fold(ready_state(), changed)) == []


def test_an_instance_on_a_node_that_runs_no_models_any_more_is_removed_and_says_so() -> None:
    back = e.NodeJoined(node=NODE, facts=make_facts(worker=False))
    state = fold(ready_state(), back, boot=BootId("boot-2"))
    (decision,) = due(state)
    assert decision == e.InstanceRemoved(
        instance=make_instance().id,
        code=Code.UNPLACEABLE,
        reason="node mac runs no models any more (--no-worker)",
    )
    assert due(fold(state, decision)) == []
    # While it is away it may still come back with a worker.
    assert due(fold(state, e.NodeLeft(node=NODE), boot=BootId("boot-2"))) == []


def test_performing_what_is_due_leaves_nothing_due() -> None:
    instance = make_instance()
    tasks = (make_task(), make_task("task-2", boot=BootId("old")), make_task("task-3", time_limit=1))
    failed = Failed(code=Code.RUNNER_FAILED, message="killed", attempt=3)
    state = ready_state(tasks=tasks)
    state = fold(state, e.RunnerStatusChanged(node=NODE, runner=instance.shards[0].runner, status=failed))
    for _ in range(10):
        decisions = list(sweep(state, absent={NODE: ABSENCE}, gone={}, ages={TaskId("task-3"): 60}))
        if not decisions:
            break
        state = fold(state, decisions[0], boot=BOOT)
    assert state.tasks == {}
    assert state.instances == {}
    assert not state.nodes[NODE].online
