"""Laws of the pure deciders, for any mix of commands and facts."""

from hypothesis import given
from hypothesis import strategies as st

from exo.services.catalog.service import Catalog
from exo.services.master.decide import Circumstances, decide
from exo.services.master.sweep import sweep
from exo.services.worker.actions import DispatchTask, FailTask, StartRunner, StopRunner
from exo.services.worker.plan import Attempt, Local, LocalRunner, plan
from exo.streams import commands as c
from exo.streams import events as e
from exo.streams.codec import decode_event, encode
from exo.streams.ids import BootId, CommandId, InstanceId, ModelId, RunnerId, TaskId
from exo.streams.instances import Failed, Ready, Starting
from exo.streams.state import State
from support.services import BOOT, NODE, NOW, fold, joined_state, make_card, make_facts, make_memory

CARDS = (make_card(), make_card("exo/scripted", architecture="scripted"))
CATALOG = Catalog(CARDS)
MODELS = st.sampled_from([ModelId("org/small"), ModelId("exo/scripted"), ModelId("small"), ModelId("nope")])
INSTANCES = st.sampled_from([InstanceId(f"i-{number}") for number in range(3)])
TASKS = st.sampled_from([TaskId(f"t-{number}") for number in range(4)])
BOOTS = st.sampled_from([BOOT, BootId("boot-2")])
STATUSES = st.sampled_from(
    [Starting(), Ready(), Failed(code="x", message="y"), Failed(code="x", message="y", retry_at=NOW + 1)]
)
WHEN = {"command_id": st.just(CommandId("replaced")), "issued_at": st.just(NOW), "ttl": st.just(1000)}


def command(kind: type[c.Command], **fields: st.SearchStrategy[object]) -> st.SearchStrategy[c.Command]:
    return st.builds(kind, **WHEN, **fields)


COMMANDS: st.SearchStrategy[c.Command] = st.one_of(
    command(c.PlaceInstance, instance=INSTANCES, model=MODELS),
    command(c.DeleteInstance, instance=INSTANCES),
    command(
        c.SubmitTask,
        task=TASKS,
        resume_on=st.one_of(st.just(InstanceId("")), INSTANCES),
        admitted=st.booleans(),
        model=MODELS,
        size=st.just(1),
        gateway=st.just(NODE),
        gateway_boot=st.just(BOOT),
        on_disconnect=st.sampled_from(["cancel", "continue"]),
    ),
    command(c.CancelTask, task=TASKS),
    command(c.DeleteModelCard, model=MODELS),
)
HAPPENED: st.SearchStrategy[e.Fact] = st.one_of(
    st.just(e.NodeJoined(node=NODE, facts=make_facts())),
    st.just(e.NodeLeft(node=NODE)),
    st.builds(
        e.RunnerStatusChanged,
        node=st.just(NODE),
        runner=INSTANCES.map(lambda instance: RunnerId(f"{instance}-0")),
        status=STATUSES,
    ),
)
FACTS = st.tuples(HAPPENED, BOOTS)
STEPS = st.lists(st.one_of(COMMANDS, FACTS), max_size=30)


def play(steps: list[c.Command | tuple[e.Fact, BootId]]) -> tuple[State, list[tuple[CommandId, e.Decision]]]:
    state, decisions = joined_state(held=CARDS), list[tuple[CommandId, e.Decision]]()
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            state = fold(state, step[0], boot=step[1])
            continue
        cause = CommandId(f"c-{number}")
        decision = decide(step, Circumstances(state, {NODE: make_memory()}, CATALOG, NOW))
        decisions.append((cause, decision))
        state = fold(state, decision, cause=cause)
    return state, decisions


@given(STEPS)
def test_every_command_leaves_a_receipt(steps: list[c.Command | tuple[e.Fact, BootId]]) -> None:
    state, decisions = play(steps)
    for cause, decision in decisions:
        receipt = state.receipts.get(cause)
        assert receipt is not None
        assert (receipt.outcome == "rejected") == isinstance(decision, e.CommandRejected)


@given(STEPS)
def test_every_decision_can_be_written_and_read(steps: list[c.Command | tuple[e.Fact, BootId]]) -> None:
    _, decisions = play(steps)
    for cause, decision in decisions:
        assert e.subject_of_event(decision).startswith("exo.events.master.")
        envelope = e.Envelope(id="x", at=NOW, actor=NODE, boot=BOOT, epoch=1, cause=cause, event=decision)
        assert decode_event(encode(envelope), sequence=1).envelope == envelope


@given(STEPS)
def test_sweeping_ends_and_leaves_only_what_can_go_on(steps: list[c.Command | tuple[e.Fact, BootId]]) -> None:
    state, _ = play(steps)
    for _ in range(40):
        decision = next(sweep(state, absent={}, gone={}, ages={}), None)
        if decision is None:
            break
        state = fold(state, decision)
    assert next(sweep(state, absent={}, gone={}, ages={}), None) is None
    node = state.nodes[NODE]
    for task in state.tasks.values():
        assert task.boot == node.boot
        assert node.online
        assert task.instance in state.instances


@given(STEPS)
def test_a_plan_that_was_performed_has_nothing_left_to_do(steps: list[c.Command | tuple[e.Fact, BootId]]) -> None:
    state, _ = play(steps)
    boot = state.nodes[NODE].boot
    gone = LocalRunner(id=RunnerId("gone"), instance=InstanceId("gone"), status=Ready(), alive=True)
    runners = {gone.id: gone}
    known: set[Attempt] = set()

    def look() -> Local:
        return Local(node=NODE, boot=boot, runners=dict(runners), known_tasks=frozenset(known))

    for _ in range(3):
        for action in plan(state, look()):
            if isinstance(action, StartRunner):
                assert action.shard.runner not in runners
                runner = LocalRunner(id=action.shard.runner, instance=action.instance.id, status=Ready(), alive=True)
                runners[runner.id] = runner
            elif isinstance(action, StopRunner):
                del runners[action.runner]
            elif isinstance(action, DispatchTask | FailTask):
                attempt = (action.task.id, action.task.attempt)
                assert attempt not in known
                known.add(attempt)
    assert plan(state, look()) == []
    assert known == {(task.id, task.attempt) for task in state.tasks.values() if task.boot == boot}
    assert set(runners) == set(state.runners)
