"""The services of a node on an in-memory broker, with real runner processes and the scripted engine."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from exo.broker.bus import StoredMessage
from exo.broker.errors import NotFoundError
from exo.broker.memory import MemoryBus
from exo.services.settings import EngineSettings
from exo.services.worker import supervisor
from exo.streams import commands as c
from exo.streams import control, subjects
from exo.streams.chunks import Admitted, Done, Failed, Rejected
from exo.streams.codec import decode_as, encode
from exo.streams.codes import Code
from exo.streams.ids import BootId, CommandId, InstanceId, NodeId, TaskId, new_command_id, new_instance_id
from exo.streams.instances import Failed as RunnerFailed
from exo.streams.instances import Ready, Starting
from exo.streams.layout import COMMANDS, EVENTS, NODES, REQUESTS, TOKENS
from exo.streams.requests import GenerationRequest, Message, TextPart
from exo.streams.views import runners_of
from support.services import BOOT, NODE, NOW, SCRIPTED, Cluster, eventually, scripted

LONG = "[[say:" + "word " * 2000 + "]]"
SLOW = {"tokens_per_second": 200.0}


@pytest.fixture(autouse=True)
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds between attempts would be the longest part of these tests."""
    monkeypatch.setattr("exo.services.worker.backoff.FIRST_DELAY", 0.05)


def runner_pid(cluster: Cluster) -> int:
    (pid,) = cluster.services.worker.process_ids()
    return pid


async def broken(cluster: Cluster) -> None:
    """Wait until the failure of the runner is known."""
    await cluster.wait(lambda state: not any(isinstance(runner.status, Ready) for runner in state.runners.values()))


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    with suppress(psutil.NoSuchProcess):
        await asyncio.to_thread(psutil.Process(pid).wait, 10)


async def test_a_request_is_answered_from_command_to_finished_fact(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path)) as cluster:
        await cluster.place()
        answer = await cluster.submit("[[say:hello world]]")
        end = await answer.end()
        assert answer.text() == "hello world"
        assert isinstance(answer.chunks[0], Admitted)
        assert isinstance(end, Done)
        state = await cluster.wait(lambda state: state.ended_tasks.get(answer.task))
        ended = state.ended_tasks.get(answer.task)
        assert ended is not None
        assert (ended.outcome, ended.last_index, ended.usage) == ("finished", end.index, end.usage)
        assert state.tasks == {}


async def test_a_burst_of_requests_is_answered_in_full(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path)) as cluster:
        await cluster.place()
        texts = [f"answer number {number}" for number in range(40)]
        answers = await asyncio.gather(*(cluster.submit(f"[[say:{text}]]") for text in texts))
        await asyncio.gather(*(answer.end() for answer in answers))
        assert [answer.text() for answer in answers] == texts
        await cluster.wait(lambda state: not state.tasks)


async def test_a_request_of_higher_priority_is_answered_first(tmp_path: Path) -> None:
    settings = replace(scripted(tmp_path), engine=EngineSettings(script=SLOW, max_batch=1))
    async with Cluster(MemoryBus(), settings) as cluster:
        await cluster.place()

        async def are_queued() -> bool:
            return [beat.queued for beat in cluster.services.worker.beats().values()] == [2]

        running = await cluster.submit(LONG)
        await running.has(3)
        low = await cluster.submit("[[say:low]]", priority=-1)
        high = await cluster.submit("[[say:high]]", priority=1)
        await eventually(are_queued, what="two that wait")
        await cluster.command(c.CancelTask, task=running.task, reason="make room")
        await low.has(2)
        # Both were admitted at once; with one place, the other has ended before this one began.
        assert high.chunks
        assert isinstance(high.chunks[-1], Done)


async def test_cancelling_ends_the_stream_with_one_failure(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path, SLOW)) as cluster:
        await cluster.place()
        answer = await cluster.submit(LONG)
        await answer.has(3)
        await cluster.command(c.CancelTask, task=answer.task, reason="stop pressed")
        end = await answer.end()
        assert isinstance(end, Failed)
        assert (end.code, end.message) == (Code.CANCELLED, "stop pressed")
        ended = cluster.state.ended_tasks.get(answer.task)
        assert ended is not None
        assert ended.outcome == "cancelled"


async def test_removing_an_instance_ends_its_requests_and_its_process(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path, SLOW)) as cluster:
        instance = await cluster.place()
        pid = runner_pid(cluster)
        answer = await cluster.submit(LONG)
        await answer.has(2)
        receipt = await cluster.command(c.DeleteInstance, instance=instance)
        assert receipt.subject_id == instance
        end = await answer.end()
        assert isinstance(end, Failed)
        assert end.code == Code.INSTANCE_REMOVED
        await gone(pid)
        assert cluster.state.instances == {}
        assert cluster.state.removed_instances[-1].reason == "removed by a user"


async def test_a_killed_runner_ends_its_requests_and_comes_back(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path, SLOW)) as cluster:
        instance = await cluster.place()
        answers = [await cluster.submit(LONG) for _ in range(5)]
        await asyncio.gather(*(answer.has(3) for answer in answers))
        os.kill(runner_pid(cluster), signal.SIGKILL)
        for answer in answers:
            end = await answer.end()
            assert isinstance(end, Failed)
            assert end.code == Code.RUNNER_FAILED
            assert "SIGKILL" in end.message
        await cluster.wait(lambda state: not state.tasks)
        outcomes = {ended.code for _, ended in cluster.state.ended_tasks.items()}
        assert outcomes == {Code.RUNNER_FAILED}
        await broken(cluster)
        await cluster.ready(instance)
        again = await cluster.submit("[[say:back]]")
        await again.end()
        assert again.text() == "back"


async def test_a_runner_that_keeps_failing_is_given_up_with_its_evidence(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path, {"fail_load": 1})) as cluster:
        attempts: list[int] = []

        def note(_recorded: object, state: object) -> None:
            for runner in cluster.state.runners.values():
                if isinstance(runner.status, RunnerFailed) and runner.status.attempt not in attempts:
                    attempts.append(runner.status.attempt)

        cluster.services.projection.on_event(note)
        instance = new_instance_id()
        await cluster.command(c.PlaceInstance, instance=instance, model=SCRIPTED)
        state = await cluster.wait(lambda state: state.removed_instances)
        removed = state.removed_instances[-1]
        assert (removed.id, removed.code) == (instance, Code.RUNNER_FAILED)
        assert removed.evidence
        assert attempts == [1, 2, 3]
        assert state.instances == {}


async def test_a_crash_that_a_request_causes_leaves_the_others_a_runner(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path, {"crash_after_tokens": 5})) as cluster:
        instance = await cluster.place()
        answer = await cluster.submit("[[say:one two three four five six seven eight]]")
        assert isinstance(await answer.end(), Failed)
        await broken(cluster)
        await cluster.ready(instance)
        short = await cluster.submit("[[say:ok]]")
        assert isinstance(await short.end(), Done)


async def test_a_runner_that_gives_no_sign_of_life_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "SILENCE", 2.5)
    async with Cluster(MemoryBus(), scripted(tmp_path, SLOW)) as cluster:
        instance = await cluster.place()
        answer = await cluster.submit(LONG)
        await answer.has(2)
        os.kill(runner_pid(cluster), signal.SIGSTOP)
        end = await answer.end()
        assert isinstance(end, Failed)
        assert "no sign of life" in end.message
        await broken(cluster)
        await cluster.ready(instance)


async def test_what_a_runner_writes_beside_frames_ends_it(tmp_path: Path) -> None:
    settings = scripted(
        tmp_path, runner_command=("sh", "-c", "echo 'last words' >&2; echo hello hello hello; sleep 60")
    )
    async with Cluster(MemoryBus(), replace(settings, max_retries=1)) as cluster:
        await cluster.command(c.PlaceInstance, instance=new_instance_id(), model=SCRIPTED)
        state = await cluster.wait(lambda state: state.removed_instances)
        assert "frame" in state.removed_instances[-1].reason


async def test_a_runner_that_cannot_be_started_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    settings = replace(scripted(tmp_path), runner_command=(str(tmp_path / "nothing"),), max_retries=1)
    async with Cluster(MemoryBus(), settings) as cluster:
        await cluster.command(c.PlaceInstance, instance=new_instance_id(), model=SCRIPTED)
        state = await cluster.wait(lambda state: state.removed_instances)
        assert "could not be started" in state.removed_instances[-1].reason


async def test_the_evidence_of_a_crash_is_the_end_of_standard_error(tmp_path: Path) -> None:
    script = "for i in $(seq 30); do echo line $i >&2; done; exit 3"
    settings = replace(scripted(tmp_path), runner_command=("sh", "-c", script), max_retries=1)
    async with Cluster(MemoryBus(), settings) as cluster:
        await cluster.command(c.PlaceInstance, instance=new_instance_id(), model=SCRIPTED)
        state = await cluster.wait(lambda state: state.removed_instances)
        removed = state.removed_instances[-1]
        assert "status 3" in removed.reason
        assert removed.evidence == tuple(f"line {number}" for number in range(11, 31))


async def test_streams_survive_a_broker_that_forgets_them(tmp_path: Path) -> None:
    bus = MemoryBus()
    async with Cluster(bus, scripted(tmp_path, SLOW)) as cluster:
        await cluster.place()
        answer = await cluster.submit("[[say:" + "word " * 100 + "]]")
        await answer.has(10)
        bus.disconnect()
        bus.server.lose_memory()
        bus.reconnect()
        await answer.end()
        assert answer.text().split() == ["word"] * 100
        await cluster.wait(lambda state: state.ended_tasks.get(answer.task))
        stored = await bus.read(TOKENS.name, subjects.tokens(NODE, answer.task), limit=10_000)
        assert len(stored) >= len(answer.chunks)


async def test_a_body_may_come_after_its_assignment(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path, SLOW)) as cluster:
        await cluster.place()
        answer = await cluster.submit("[[say:late]]", late=True)
        await answer.end()
        assert answer.text() == "late"


async def test_a_restarted_node_fails_its_requests_and_serves_the_same_models(tmp_path: Path) -> None:
    first = MemoryBus()
    cluster = Cluster(first, scripted(tmp_path, SLOW))
    await cluster.start()
    instance = await cluster.place()
    answer = await cluster.submit(LONG)
    await answer.has(2)
    pid = runner_pid(cluster)
    # As a crash would: nothing is said, nobody is told.
    for task in cluster.services._tasks.values():
        task.cancel()
    await asyncio.gather(*cluster.services._tasks.values(), return_exceptions=True)
    await gone(pid)
    again = scripted(tmp_path, SLOW, boot=BootId("boot-2"))
    async with Cluster(MemoryBus(first.server), again) as second:
        state = await second.wait(lambda state: state.ended_tasks.get(answer.task))
        ended = state.ended_tasks.get(answer.task)
        assert ended is not None
        assert ended.code == Code.NODE_RESTARTED
        await second.ready(instance)
        renewed = await second.submit("[[say:again]]")
        await renewed.end()
        assert renewed.text() == "again"


async def test_a_stopped_node_has_left_and_leaves_nothing_running(tmp_path: Path) -> None:
    bus = MemoryBus()
    async with Cluster(bus, scripted(tmp_path, SLOW)) as cluster:
        await cluster.place()
        pid = runner_pid(cluster)
        answer = await cluster.submit(LONG)
        await answer.has(2)
        projection = cluster.services.projection
    end = await answer.end()
    assert isinstance(end, Failed)
    assert end.code == Code.NODE_RESTARTED
    await gone(pid)
    record = projection.state.nodes[NODE]
    assert (record.online, record.cause) == (False, "left")
    assert projection.state.tasks == {}
    assert await bus.get(NODES.name, NODE) is None
    async with Cluster(MemoryBus(bus.server), scripted(tmp_path, boot=BootId("boot-2"))) as again:
        # The snapshot of the shutdown is what the next start begins with.
        assert again.state.instances


async def test_requests_may_end_while_the_node_stops(tmp_path: Path) -> None:
    cluster = Cluster(MemoryBus(), scripted(tmp_path, SLOW))
    await cluster.start()
    await cluster.place()
    answer = await cluster.submit("[[say:" + "word " * 40 + "]]")
    await answer.has(2)
    await cluster.services.stop(grace=10)
    assert isinstance(await answer.end(), Done)
    ended = cluster.state.ended_tasks.get(answer.task)
    assert ended is not None
    assert ended.outcome == "finished"


async def test_a_request_that_comes_while_the_node_stops_is_refused_at_once(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path, SLOW)) as cluster:
        await cluster.place()
        running = await cluster.submit("[[say:" + "word " * 60 + "]]")
        await running.has(2)
        stopping = asyncio.create_task(cluster.services.worker.stop(grace=10))
        await asyncio.sleep(0)
        late = await cluster.submit("[[say:late]]")
        refused = await late.end()
        assert isinstance(refused, Rejected)
        assert refused.code == Code.NODE_RESTARTED
        await stopping
        assert isinstance(await running.end(), Done)


async def test_a_request_without_a_body_is_refused(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path)) as cluster:
        await cluster.place()
        task = TaskId("no-body")
        who = {"gateway": NODE, "gateway_boot": BOOT}
        await cluster.command(c.SubmitTask, task=task, model=SCRIPTED, size=0, **who)
        state = await cluster.wait(lambda state: state.ended_tasks.get(task))
        ended = state.ended_tasks.get(task)
        assert ended is not None
        assert (ended.code, ended.last_index) == (Code.INTERNAL, 0)


class LosingBus(MemoryBus):
    """Has lost the stream of request bodies."""

    async def get_last(self, stream: str, subject: str) -> StoredMessage | None:
        if stream == REQUESTS.name:
            raise NotFoundError("no stream")
        return await super().get_last(stream, subject)


async def test_a_broker_that_lost_a_body_costs_one_request_and_no_runner(tmp_path: Path) -> None:
    async with Cluster(LosingBus(), scripted(tmp_path)) as cluster:
        await cluster.place()
        pid = runner_pid(cluster)
        answer = await cluster.submit("[[say:hello]]")
        refused = await answer.end()
        assert isinstance(refused, Rejected)
        assert refused.code == Code.INTERNAL
        assert runner_pid(cluster) == pid


async def test_the_runner_refuses_what_it_cannot_answer(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path)) as cluster:
        await cluster.place()
        answer = await cluster.submit("word " * 40_000)
        end = await answer.end()
        assert isinstance(end, Rejected)
        assert end.code == Code.CONTEXT_LENGTH_EXCEEDED


async def test_tokens_are_counted_by_the_runner(tmp_path: Path) -> None:
    bus = MemoryBus()
    async with Cluster(bus, scripted(tmp_path)) as cluster:
        instance = await cluster.place()
        request = GenerationRequest(model=SCRIPTED, messages=(Message(role="user", content=(TextPart("hello"),)),))

        async def count(asked: InstanceId) -> control.CountReply:
            body = encode(control.CountTokensOf(instance=asked, request=request))
            subject = subjects.control(NODE, control.COUNT_TOKENS)
            return decode_as(control.CountReply, await bus.request(subject, body, timeout=10))

        counted = await count(instance)
        assert counted.tokens > 0
        assert counted.code == ""
        assert (await count(InstanceId("other"))).code == Code.INSTANCE_NOT_FOUND


async def test_a_command_that_comes_twice_acts_once(tmp_path: Path) -> None:
    bus = MemoryBus()
    async with Cluster(bus, scripted(tmp_path)) as cluster:
        command = c.CancelTask(command_id=new_command_id(), issued_at=cluster._now(), task=TaskId("nobody"))
        first = await cluster.send(command)
        # Beyond the server's own memory of message ids: only the receipt in State can tell.
        bus.server.advance(600)
        assert await cluster.send(command) == first
        sentinel = await cluster.command(c.CancelTask, task=TaskId("sentinel"))
        assert sentinel.sequence > first.sequence
        cancelled = await bus.read(EVENTS.name, subjects.master_event("task", "nobody", "cancelled"))
        assert len(cancelled) == 1
        info = await bus.stream_info(COMMANDS.name)
        assert info.messages <= 1


async def test_garbage_and_unknown_commands_do_not_stop_the_master(tmp_path: Path) -> None:
    bus = MemoryBus()
    async with Cluster(bus, scripted(tmp_path)) as cluster:
        await bus.append(subjects.command("task", "submit"), b"garbage")
        await bus.append(subjects.command("task", "dance"), b'{"type":"dance","command_id":"c-dance"}')
        receipt = await cluster.services.projection.answer(CommandId("c-dance"), timeout=10)
        assert receipt.code == Code.COMMAND_UNKNOWN
        poisoned = await bus.read("EXO_POISON", subjects.POISON)
        assert len(poisoned) == 1


async def test_an_expired_command_is_answered_so(tmp_path: Path) -> None:
    bus = MemoryBus()
    # The sender's clock says nothing: what counts is how long it lay where nobody took it.
    late = c.CancelTask(command_id=new_command_id(), issued_at=2 * NOW, task=TaskId("x"))
    await bus.append(c.subject_of_command(late), encode(late))
    bus.server.advance(31)
    async with Cluster(bus, scripted(tmp_path)) as cluster:
        receipt = await cluster.services.projection.answer(late.command_id, timeout=20)
        assert receipt.code == Code.COMMAND_EXPIRED
        early = c.CancelTask(command_id=new_command_id(), issued_at=NOW, task=TaskId("x"))
        assert (await cluster.send(early)).outcome == "accepted"


async def test_a_node_without_a_worker_is_never_placed_on(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path, worker=False)) as cluster:
        receipt = await cluster.command(c.PlaceInstance, instance=new_instance_id(), model=SCRIPTED)
        assert receipt.code == Code.UNPLACEABLE
        assert cluster.state.nodes[NODE].online


async def test_a_second_node_follows_and_takes_over(tmp_path: Path) -> None:
    bus = MemoryBus()
    other = scripted(tmp_path / "b", node=NodeId("node-b"), boot=BootId("boot-b"), worker=False)
    async with Cluster(MemoryBus(bus.server), other) as second:
        async with Cluster(bus, scripted(tmp_path / "a")) as first:
            await first.place()
            assert first.state.master == second.state.master == NodeId("node-b")
        await second.wait(lambda state: not state.nodes[NODE].online)
    async with Cluster(MemoryBus(bus.server), scripted(tmp_path / "a", boot=BootId("boot-2"))) as first:
        state = await first.wait(lambda state: state.master == NODE)
        assert state.epoch == 3
        await first.wait(lambda state: all(isinstance(r.status, Ready) for r in state.runners.values()))


async def test_every_status_of_a_life_is_told_in_order(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path, {"load_seconds": 0.2})) as cluster:
        seen: list[str] = []

        def note(_recorded: object, _state: object) -> None:
            for runner in cluster.state.runners.values():
                name = type(runner.status).__name__
                if not seen or seen[-1] != name:
                    seen.append(name)

        cluster.services.projection.on_event(note)
        instance = await cluster.place()
        assert seen[0] == Starting.__name__
        assert seen[-2:] == ["WarmingUp", "Ready"]
        assert [runner.rank for runner in runners_of(cluster.state, instance)] == [0]
