"""Sessions that follow each other, with real runner processes: what was begun goes on, what ended stays ended."""

from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from exo.services import merge as merge_module
from exo.services.worker import service
from exo.streams import commands as c
from exo.streams import events as e
from exo.streams.chunks import Done
from exo.streams.codec import decode_event
from exo.streams.codes import Code
from exo.streams.ids import InstanceId, KeyId, SessionId, TaskId
from exo.streams.instances import Loading
from exo.streams.keys import ApiKey
from exo.streams.layout import EVENTS
from exo.streams.state import State
from support.services import SCRIPTED, eventually, fold, make_card
from support.sessions import WORKER, Pair, running_pair

SLOW = {"tokens_per_second": 150.0}
TEXT = " ".join(f"word{number}" for number in range(60))


def placed_at(pair: Pair, instance: InstanceId) -> int:
    """The sequence of an instance's placement, 0 when an earlier log had it."""
    for message in pair.server.stream(EVENTS.name).messages:
        envelope = decode_event(message.payload, sequence=message.sequence).envelope
        if envelope and isinstance(envelope.event, e.InstancePlaced) and envelope.event.instance.id == instance:
            return message.sequence
    return pair.base.applied


async def place(pair: Pair) -> InstanceId:
    instance = await pair.hub.place()
    await pair.worker.ready(instance)
    return instance


def outcome(state: State, task: str) -> str:
    ended = next((ended for key, ended in state.ended_tasks.items() if key == task), None)
    return ended.outcome if ended else "none"


async def test_streams_come_through_a_hub_that_dies_with_any_of_its_newest_events(tmp_path: Path) -> None:
    async with running_pair(tmp_path, SLOW) as pair:
        instance = await place(pair)
        (pid,) = pair.worker.services.worker.process_ids()
        deepest = 0
        for wished in range(12):
            answer = await pair.hub.submit(f"[[say:{TEXT}]]")
            await answer.has(5)
            lost = min(wished, pair.last - placed_at(pair, instance))
            deepest = max(deepest, lost)
            await pair.move(lost=lost)
            await pair.resume(answer, instance)
            assert isinstance(await answer.end(), Done)
            assert answer.text() == TEXT
            state = await pair.hub.wait(lambda state, task=answer.task: state.ended_tasks.get(task))
            assert outcome(state, answer.task) == "finished"
            await pair.hub.ready(instance)
            await pair.agree()
        assert list(pair.worker.services.worker.process_ids()) == [pid]
        # Deep enough to lose assignments, ends, reports and epochs.
        assert deepest >= 6


async def test_an_end_that_the_log_lost_is_said_again_and_nothing_runs_twice(tmp_path: Path) -> None:
    async with running_pair(tmp_path, {}) as pair:
        instance = await place(pair)
        before = pair.last
        answer = await pair.hub.submit("[[say:hello there]]")
        await pair.hub.wait(lambda state: state.ended_tasks.get(answer.task))
        chunks = len(answer.chunks)
        for lost in range(1, pair.last - before + 1):
            await pair.move(lost=min(lost, pair.last - before))
            await pair.resume(answer, instance)
            state = await pair.hub.wait(lambda state: state.ended_tasks.get(answer.task))
            assert outcome(state, answer.task) == "finished"
            await pair.agree()
        assert len(answer.chunks) == chunks


async def test_a_request_that_no_chunk_was_seen_of_begins_anew_where_its_instance_is_gone(tmp_path: Path) -> None:
    async with running_pair(tmp_path, SLOW) as pair:
        before = pair.last
        lost_instance = await place(pair)
        answer = await pair.hub.submit(f"[[say:{TEXT}]]")
        await pair.worker.wait(lambda state: answer.task in state.tasks)
        await pair.move(lost=pair.last - before)
        await pair.hub.wait(lambda state: state.session == pair.session)
        second = await pair.hub.place()
        receipt = await pair.resume(answer, lost_instance, admitted=False)
        assert receipt is not None
        assert receipt.outcome == "accepted"
        state = await pair.hub.wait(lambda state: answer.task in state.tasks)
        assert (state.tasks[answer.task].instance, state.tasks[answer.task].attempt) == (second, 2)
        state = await pair.hub.wait(lambda state: state.ended_tasks.get(answer.task))
        assert outcome(state, answer.task) == "finished"


async def test_an_admitted_request_whose_instance_is_gone_is_refused(tmp_path: Path) -> None:
    async with running_pair(tmp_path, SLOW) as pair:
        before = pair.last
        instance = await place(pair)
        answer = await pair.hub.submit(f"[[say:{TEXT}]]")
        await answer.has(5)
        await pair.move(lost=pair.last - before)
        receipt = await pair.resume(answer, instance)
        assert receipt is not None
        assert receipt.code == Code.CLUSTER_MERGED


async def test_a_runner_whose_instance_does_not_come_back_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SETTLING", 0.5)
    async with running_pair(tmp_path, SLOW) as pair:
        before = pair.last
        await place(pair)
        await pair.move(lost=pair.last - before)
        state = await pair.hub.wait(lambda state: state.nodes[WORKER].strays)
        assert state.instances == {}

        async def is_gone() -> bool:
            return not list(pair.worker.services.worker.process_ids())

        await eventually(is_gone, what="the end of the runner")


async def test_a_runner_is_gone_before_one_of_the_same_name_starts(tmp_path: Path) -> None:
    async with running_pair(tmp_path, SLOW) as pair:
        instance_id = await place(pair)
        instance = pair.hub.state.instances[instance_id]
        worker = pair.worker.services.worker
        (before,) = worker.process_ids()
        alive: list[bool] = []

        def note(recorded: e.Recorded, _state: State) -> None:
            event = recorded.envelope.event if recorded.envelope else None
            if isinstance(event, e.RunnerStatusChanged) and isinstance(event.status, Loading):
                alive.append(psutil.pid_exists(before))

        pair.worker.services.projection.on_event(note)
        await pair.hub.command(c.DeleteInstance, instance=instance.id)
        receipt = await pair.hub.command(c.CreateInstance, instance=instance)
        assert receipt.outcome == "accepted"
        await pair.hub.ready(instance.id)
        (after,) = worker.process_ids()
        assert after != before
        assert alive
        assert not any(alive)


async def test_a_cluster_that_joins_another_one_brings_its_models_and_answers_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_module, "TASKS_PATIENCE", 1.0)
    async with running_pair(tmp_path, SLOW) as pair:
        instance = await place(pair)
        card = make_card("org/mine", is_custom=True)
        await pair.hub.command(c.AddModelCard, card=card)
        key = ApiKey(id=KeyId("key-1"), name="laptop", scopes=("infer",), sha256="0" * 64)
        await pair.hub.command(c.AddApiKey, key=key)
        (pid,) = pair.worker.services.worker.process_ids()
        answer = await pair.hub.submit(f"[[say:{TEXT}]]")
        forgotten = await pair.hub.submit("[[say:" + "word " * 2000 + "]]")
        await answer.has(5)
        former = pair.hub.state.session
        pair.lose_hub()
        await pair.move_to(State())
        await pair.hub.wait(lambda state: state.session == pair.session and instance in state.instances)
        receipt = await pair.resume(answer, instance)
        assert receipt is not None
        assert receipt.outcome == "accepted"
        assert isinstance(await answer.end(), Done)
        assert answer.text() == TEXT
        state = await pair.hub.wait(lambda state: len(state.merges) == 1 and has_task(state, forgotten.task))
        assert state.cards[card.model_id] == card
        assert state.api_keys == {}
        merge = state.merges[0]
        assert (merge.session, set(merge.adopted)) == (former, {instance, "org/mine"})
        assert {(item.kind, item.name) for item in merge.dropped} == {("key", "laptop"), ("task", SCRIPTED)}
        assert list(pair.worker.services.worker.process_ids()) == [pid]
        await pair.hub.ready(instance)
        await pair.agree()


def has_task(state: State, task: str) -> bool:
    return any(item.kind == "task" and item.id == task for item in state.merges[0].dropped)


async def test_what_was_removed_on_the_other_side_stays_removed(tmp_path: Path) -> None:
    async with running_pair(tmp_path, SLOW) as pair:
        instance = await place(pair)
        other = await pair.hub.place()
        fork = pair.hub.state
        removed = fold(fork, e.InstanceRemoved(instance=instance, code="x", reason="not needed"))
        # Two hubs that went their own ways from one State.
        await pair.hub.command(c.CancelTask, task=TaskId("ours"))
        pair.lose_hub()
        await pair.move_to(replace(removed, session=SessionId("theirs"), lineage=()))
        state = await pair.hub.wait(lambda state: state.merges)
        assert list(state.instances) == [other]
        assert [(item.id, item.reason) for item in state.merges[0].dropped] == [(instance, "removed there: not needed")]

        async def is_one() -> bool:
            return len(list(pair.worker.services.worker.process_ids())) == 1

        await eventually(is_one, what="the end of the removed instance's runner")
