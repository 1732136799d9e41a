"""What each event does to State, told as small histories."""

from exo.streams import events as e
from exo.streams import views
from exo.streams.apply import apply
from exo.streams.chunks import Usage
from exo.streams.ids import BootId, CommandId, InstanceId, ModelId, NodeId, RunnerId, TaskId
from exo.streams.instances import Failed, Instance, Ready, Shard, Starting
from exo.streams.models import ModelCard
from exo.streams.nodes import NodeFacts, RunnerReport
from exo.streams.state import State
from exo.streams.tasks import TaskRecord

NODE, BOOT, RUNNER, INSTANCE = NodeId("node"), BootId("boot-1"), RunnerId("runner"), InstanceId("instance")
MODEL, TASK = ModelId("org/model"), TaskId("task")
CARD = ModelCard(model_id=MODEL)
SHARD = Shard(runner=RUNNER, node=NODE, rank=0, world_size=1, start_layer=0, end_layer=4, n_layers=4)
PLACED = e.InstancePlaced(
    instance=Instance(
        id=INSTANCE, model=CARD, sharding="Pipeline", transport="MlxRing", shards=(SHARD,), context_length=64
    )
)
JOINED = e.NodeJoined(node=NODE, facts=NodeFacts(name="desk", version="1"))
READY = e.RunnerStatusChanged(node=NODE, runner=RUNNER, status=Ready())
FINISHED = e.TaskFinished(node=NODE, task=TASK, last_index=5, reason="stop", usage=Usage(prompt=1))
ASSIGNED = e.TaskAssigned(
    task=TaskRecord(
        id=TASK,
        command=CommandId("c"),
        model=MODEL,
        instance=INSTANCE,
        node=NODE,
        boot=BOOT,
        gateway=NODE,
        gateway_boot=BOOT,
    )
)


def fold(*happened: e.Event, boot: BootId = BOOT, state: State | None = None, cause: str | None = None) -> State:
    state = state or State()
    for event in happened:
        envelope = e.Envelope(
            id="id", at=7, actor=NODE, boot=boot, cause=CommandId(cause) if cause else None, event=event
        )
        state = apply(state, e.Recorded(state.applied + 1, envelope))
    return state


def test_a_placed_instance_becomes_ready_with_its_last_rank() -> None:
    placed = fold(JOINED, PLACED)
    assert not views.is_ready(placed, INSTANCE)
    assert views.is_ready(fold(READY, state=placed), INSTANCE)


def test_a_ready_instance_on_an_absent_node_is_not_ready() -> None:
    state = fold(JOINED, PLACED, READY, e.NodeTimedOut(node=NODE))
    assert not views.is_ready(state, INSTANCE)
    assert state.nodes[NODE].cause == "timed_out"


def test_a_new_boot_starts_all_runners_of_the_node_anew() -> None:
    state = fold(JOINED, boot=BootId("boot-2"), state=fold(JOINED, PLACED, READY))
    assert state.runners[RUNNER].status == Starting()
    assert INSTANCE in state.instances


def test_a_fact_of_an_older_boot_changes_nothing_and_is_counted() -> None:
    state = fold(JOINED, boot=BootId("boot-2"), state=fold(JOINED, PLACED))
    after = fold(READY, state=state)
    assert after.runners == state.runners
    assert after.ignored_events == 1


def test_a_fact_about_another_node_is_ignored() -> None:
    lie = e.NodeLeft(node=NodeId("other"))
    assert fold(JOINED, lie).ignored_events == 1


def test_the_first_ending_of_a_task_stays() -> None:
    failed = e.TasksFailed(tasks=(TASK,), code="node_timed_out", message="gone")
    state = fold(JOINED, PLACED, ASSIGNED, failed, FINISHED)
    ended = state.ended_tasks.get(TASK)
    assert ended is not None
    assert (ended.outcome, ended.code) == ("failed", "node_timed_out")
    assert state.tasks == {}


def test_a_finished_task_keeps_its_last_index_and_usage() -> None:
    ended = fold(JOINED, PLACED, ASSIGNED, FINISHED).ended_tasks.get(TASK)
    assert ended is not None
    assert (ended.outcome, ended.last_index, ended.usage) == ("finished", 5, Usage(prompt=1))


def test_removing_an_instance_ends_its_tasks_and_keeps_its_reason() -> None:
    removed = e.InstanceRemoved(instance=INSTANCE, code="runner_failed", reason="it crashed", evidence=("oom",))
    state = fold(JOINED, PLACED, ASSIGNED, removed)
    ended = state.ended_tasks.get(TASK)
    assert ended is not None
    assert ended.code == "instance_removed"
    assert state.runners == {}
    assert [(item.id, item.reason, item.evidence) for item in state.removed_instances] == [
        (INSTANCE, "it crashed", ("oom",))
    ]


def test_cancelling_an_unknown_task_leaves_a_tombstone() -> None:
    ended = fold(e.TaskCancelled(task=TASK, reason="stop")).ended_tasks.get(TASK)
    assert ended is not None
    assert ended.outcome == "cancelled"


def test_a_report_sets_right_what_a_lost_fact_left_wrong() -> None:
    failed = Failed(code="runner_failed", message="died")
    report = e.NodeReported(node=NODE, runners=(RunnerReport(runner=RUNNER, status=failed),), models=(), tasks=())
    state = fold(JOINED, PLACED, READY, report)
    assert state.runners[RUNNER].status == failed
    assert views.failure_of(state, INSTANCE) == failed


def test_each_command_leaves_one_receipt() -> None:
    accepted = fold(PLACED, cause="c1").receipts.get(CommandId("c1"))
    rejected = fold(
        e.CommandRejected(command=CommandId("c2"), code="insufficient_memory", reason="r"), cause="c2"
    ).receipts.get(CommandId("c2"))
    assert accepted is not None
    assert (accepted.outcome, accepted.subject_id, accepted.sequence) == ("accepted", INSTANCE, 1)
    assert rejected is not None
    assert (rejected.outcome, rejected.code) == ("rejected", "insufficient_memory")


def test_the_least_busy_ready_instance_is_chosen() -> None:
    other = RunnerId("runner-2")
    second = e.InstancePlaced(
        instance=Instance(
            id=InstanceId("instance-2"),
            model=CARD,
            sharding="Pipeline",
            transport="MlxRing",
            shards=(Shard(runner=other, node=NODE, rank=0, world_size=1, start_layer=0, end_layer=4, n_layers=4),),
            context_length=64,
        )
    )
    state = fold(JOINED, PLACED, READY, second, e.RunnerStatusChanged(node=NODE, runner=other, status=Ready()))
    first = views.least_busy_instance(state, MODEL)
    assert first is not None
    assert first.id == INSTANCE
    busy = views.least_busy_instance(fold(ASSIGNED, state=state), MODEL)
    assert busy is not None
    assert busy.id == "instance-2"
