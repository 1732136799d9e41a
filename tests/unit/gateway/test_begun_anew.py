"""Requests whose node or instance is lost before any output: done after all, and the client sees a pause only."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from exo.gateway import submissions
from exo.streams import commands as c
from exo.streams import events as e
from exo.streams.chunks import Admitted, Chunk, Prefill, Rejected, Text
from exo.streams.codes import Code
from exo.streams.ids import InstanceId, TaskId
from exo.streams.requests import GenerationRequest
from support.fake_cluster import MODEL, NODE, FakeCluster, Piece, instance_of, say
from support.gateway import BODY, Client, until

URL = "/v1/chat/completions"
BEFORE_OUTPUT: list[list[Chunk]] = [[], [Admitted(1, 0, 5)], [Admitted(1, 0, 5), Prefill(1, 1, 3, 5)]]


def attempt(number: int, pieces: Sequence[Piece]) -> list[Piece]:
    return [piece if isinstance(piece, asyncio.Event) else replace(piece, attempt=number) for piece in pieces]


class Begun:
    """A script that gets no further than its first chunks, `times` times, and then answers."""

    def __init__(self, *chunks: Chunk, times: int = 1) -> None:
        self.calls = 0
        self._chunks = chunks
        self._times = times

    def __call__(self, _request: GenerationRequest) -> Sequence[Piece]:
        self.calls += 1
        pieces = say("whole", " answer") if self.calls > self._times else [*self._chunks, asyncio.Event()]
        return attempt(self.calls, pieces)


def submitted(cluster: FakeCluster) -> list[c.SubmitTask]:
    return [command for command in cluster.commands if isinstance(command, c.SubmitTask)]


async def lose(cluster: FakeCluster, script: Begun, *, call: int = 1, code: str = Code.NODE_TIMED_OUT) -> TaskId:
    """Play the master that gives up the node which works on the request."""
    await until(lambda: script.calls == call and bool(cluster.states.state.tasks))
    (task,) = cluster.states.state.tasks
    await asyncio.sleep(0.05)
    await cluster.record(e.TasksFailed(tasks=(task,), code=code, message="the node was lost"))
    return task


@pytest.mark.parametrize("chunks", BEFORE_OUTPUT, ids=["nothing", "admitted", "prefill"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_is_begun_anew(
    cluster: FakeCluster, client: Client, chunks: list[Chunk], *, stream: bool
) -> None:
    cluster.script = script = Begun(*chunks)
    asking = asyncio.create_task(client.post(URL, json={**BODY, "stream": stream}))
    task = await lose(cluster, script)
    answer = await asking
    assert answer.status_code == 200
    assert "whole" in answer.text
    assert "error" not in answer.text
    assert [(command.task, command.attempt) for command in submitted(cluster)] == [(task, 1), (task, 2)]
    ended = cluster.states.state.ended_tasks.get(task)
    assert ended is not None
    assert ended.outcome == "finished"


async def test_output_cannot_be_taken_back(cluster: FakeCluster, client: Client) -> None:
    cluster.script = script = Begun(Admitted(1, 0, 5), Text(1, 1, "half"))
    asking = asyncio.create_task(client.post(URL, json={**BODY, "stream": True}))
    await lose(cluster, script)
    answer = await asking
    assert Code.NODE_TIMED_OUT in answer.text
    assert len(submitted(cluster)) == 1


async def test_a_request_is_begun_anew_twice_at_most(cluster: FakeCluster, client: Client) -> None:
    cluster.script = script = Begun(times=9)
    asking = asyncio.create_task(client.post(URL, json=BODY))
    for call in (1, 2, 3):
        await lose(cluster, script, call=call, code=Code.NODE_RESTARTED)
    answer = await asking
    assert answer.json()["error"]["code"] == Code.NODE_RESTARTED
    assert [command.attempt for command in submitted(cluster)] == [1, 2, 3]


async def test_the_last_word_of_a_node_that_stops_is_not_the_end(cluster: FakeCluster, client: Client) -> None:
    cluster.script = script = Begun(Rejected(1, 0, Code.NODE_RESTARTED, "the node is shutting down"))
    asking = asyncio.create_task(client.post(URL, json=BODY))
    await until(lambda: script.calls == 1 and bool(cluster.states.state.tasks))
    (task,) = cluster.states.state.tasks
    await asyncio.sleep(0.05)
    assert not asking.done()
    await cluster.record(
        e.TaskFailed(node=NODE, task=task, last_index=0, code=Code.NODE_RESTARTED, message="shutting down")
    )
    answer = await asking
    assert answer.json()["choices"][0]["message"]["content"] == "whole answer"


@pytest.mark.parametrize(
    ("code", "goes_on"), [(Code.INSTANCE_REMOVED, False), (Code.RUNNER_FAILED, True)], ids=["wish", "failure"]
)
async def test_only_a_failed_instance_is_replaced(
    cluster: FakeCluster, client: Client, code: Code, *, goes_on: bool
) -> None:
    cluster.script = script = Begun()
    asking = asyncio.create_task(client.post(URL, json=BODY))
    await until(lambda: script.calls == 1 and bool(cluster.states.state.tasks))
    await cluster.place(instance_of(MODEL, identifier="instance-2"))
    await cluster.record(e.InstanceRemoved(instance=InstanceId("instance-1"), code=code, reason="gone"))
    answer = await asking
    assert (answer.status_code == 200) == goes_on
    if not goes_on:
        assert answer.json()["error"]["code"] == Code.INSTANCE_REMOVED


async def test_where_nothing_becomes_ready_the_request_ends_as_it_was_lost(
    cluster: FakeCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "ANEW_PATIENCE", 0.3)
    cluster.script = script = Begun()
    asking = asyncio.create_task(client.post(URL, json=BODY))
    await until(lambda: script.calls == 1 and bool(cluster.states.state.tasks))
    failed = e.InstanceRemoved(instance=InstanceId("instance-1"), code=Code.RUNNER_FAILED, reason="it broke")
    await cluster.record(failed)
    answer = await asking
    assert answer.json()["error"]["code"] == Code.INSTANCE_REMOVED


async def test_nobody_is_served_who_has_left(cluster: FakeCluster, client: Client) -> None:
    cluster.script = script = Begun()
    asking = asyncio.create_task(client.post(URL, json=BODY))
    await until(lambda: script.calls == 1 and bool(cluster.states.state.tasks))
    (task,) = cluster.states.state.tasks
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: task in cluster.cancelled)
    assert len(submitted(cluster)) == 1
