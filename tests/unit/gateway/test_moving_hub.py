"""Answers over the loss of the hub: another server takes over, which may have missed the last events."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from exo.gateway import cancelling, hub, outages, submissions
from exo.streams import commands as c
from exo.streams import subjects
from exo.streams.codec import decode_stored_request
from exo.streams.codes import Code
from exo.streams.events import InstanceRemoved
from exo.streams.ids import InstanceId, TaskId
from exo.streams.layout import REQUESTS
from exo.streams.requests import GenerationRequest, StoredRequest
from support.chat import Stream
from support.fake_cluster import FakeCluster, Piece, always, say
from support.gateway import BODY, Client, pause, read_stream, until

URL = "/v1/chat/completions"
WHOLE = ["0.0", "1.0", "2.0", "3.0", "3.1"]
"""The ids of all frames of a two-word answer."""


class Held:
    """A script that says one word, waits, and says another."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    def __call__(self, _request: GenerationRequest) -> Sequence[Piece]:
        admitted, first, second, done = say("one", " two")
        return [admitted, first, self.gate, second, done]


async def begin(client: Client, **headers: str) -> tuple[Stream, asyncio.Task[None]]:
    """Ask for a stream and wait for its first word; gives it as it grows, and who reads it."""
    stream = Stream()

    async def read() -> None:
        async with client.stream("POST", URL, json={**BODY, "stream": True}, headers=headers) as response:
            stream.status = response.status_code
            async for line in response.aiter_lines():
                stream.take(line)

    reading = asyncio.create_task(read())
    await until(lambda: stream.text == "one")
    return stream, reading


async def stored(cluster: FakeCluster, task: str) -> StoredRequest | None:
    message = await cluster.bus.get_last(REQUESTS.name, subjects.request(TaskId(task)))
    return decode_stored_request(message.payload) if message else None


async def until_true(look: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until the answer is yes."""
    seen = False

    async def turn() -> None:
        nonlocal seen
        seen = await look()
        await pause()

    await until(lambda: seen, turn=turn)


def submitted(cluster: FakeCluster) -> list[c.SubmitTask]:
    return [command for command in cluster.commands if isinstance(command, c.SubmitTask)]


@pytest.mark.parametrize("lost", [0, 1])
async def test_a_running_stream_goes_on_without_a_gap(cluster: FakeCluster, client: Client, lost: int) -> None:
    """With `lost` 1 the new hub has never heard of the request: its gateway submits it again."""
    cluster.script = held = Held()
    stream, reading = await begin(client)
    (first,) = submitted(cluster)
    cluster.lose_hub()
    await cluster.find_hub(lost=lost)
    await until(lambda: cluster.states.state.session == "s2" and first.task in cluster.states.state.tasks)
    held.gate.set()
    await reading
    assert (stream.text, stream.ids, stream.finishes, stream.errors) == ("one two", WHOLE, ["stop"], [])
    again = submitted(cluster)[1:]
    assert len(again) == lost
    for command in again:
        assert (command.command_id, command.task) == (first.command_id, first.task)
        assert (command.resume_on, command.admitted, command.attempt) == ("instance-1", True, 1)


async def test_chunks_made_without_a_hub_are_not_lost(cluster: FakeCluster, client: Client) -> None:
    cluster.script = held = Held()
    stream, reading = await begin(client)
    cluster.lose_hub()
    held.gate.set()
    await asyncio.sleep(0.05)
    await cluster.find_hub(lost=1)
    await reading
    assert (stream.text, stream.ids, stream.errors) == ("one two", WHOLE, [])


async def test_a_request_that_waits_for_the_master_is_asked_and_stored_again(
    cluster: FakeCluster, client: Client
) -> None:
    cluster.answering = False
    asking = asyncio.create_task(client.post(URL, json=BODY))
    await until(lambda: cluster.bus.server.stream(REQUESTS.name).last_sequence > 0)
    cluster.lose_hub()
    cluster.answering = True
    await cluster.find_hub()
    answer = await asking
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "Hello world"
    assert len(submitted(cluster)) == 1


async def test_a_request_whose_answer_had_not_begun_begins_with_its_body(cluster: FakeCluster, client: Client) -> None:
    started, silence = list[str](), asyncio.Event()

    def script(request: GenerationRequest) -> Sequence[Piece]:
        started.append(request.messages[0].text())
        return [silence, *say("late")]

    cluster.script = script
    asking = asyncio.create_task(client.post(URL, json=BODY))
    await until(lambda: bool(started))
    (task,) = cluster.states.state.tasks
    cluster.lose_hub()
    await cluster.find_hub(lost=1)
    await until(lambda: len(submitted(cluster)) == 2)
    assert not submitted(cluster)[1].admitted
    kept = await stored(cluster, task)
    assert kept is not None
    assert kept.request.messages[0].text() == "hi"
    silence.set()
    assert (await asking).json()["choices"][0]["message"]["content"] == "late"
    assert started == ["hi"]


async def test_a_stream_whose_instance_is_gone_ends_in_one_error(
    cluster: FakeCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "PLACE_PATIENCE", 0.2)
    await cluster.record(
        InstanceRemoved(instance=InstanceId("instance-1"), code=Code.INSTANCE_REMOVED, reason="a stand-in for a merge")
    )
    events = cluster.bus.server.stream("EXO_EVENTS").last_sequence
    await until(lambda: cluster.states.state.applied == events)
    # The loser of a merge ran it on an instance that the winner does not know.
    await cluster.place_unseen()
    cluster.script = held = Held()
    stream, reading = await begin(client)
    cluster.lose_hub()
    await cluster.find_hub(lost=cluster.states.state.applied - events)
    await reading
    held.gate.set()
    assert stream.text == "one"
    assert [error["code"] for error in stream.errors] == ["cluster_merged"]
    assert (stream.done, stream.finishes) == (0, [])


async def test_what_ended_lately_is_resumed_on_the_new_hub(cluster: FakeCluster, client: Client) -> None:
    stream, _ = await read_stream(client, BODY)
    request = stream.frames[0]["id"]
    task = request.removeprefix("chatcmpl-")

    async def is_stripped() -> bool:
        kept = await stored(cluster, task)
        return kept is not None and not kept.request.messages

    await until_true(is_stripped)
    cluster.lose_hub()
    await cluster.find_hub()
    resumed = await client.get(f"/v1/requests/{request}/stream", headers={"Last-Event-ID": stream.ids[1]})
    assert resumed.status_code == 200
    ids = [line[4:] for line in resumed.text.splitlines() if line.startswith("id: ")]
    assert ids == stream.ids[2:]


async def test_a_request_that_no_session_knows_any_more_ends(
    cluster: FakeCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gateway was restarted, so nobody submits it again; whoever had resumed it is told."""
    monkeypatch.setattr(outages, "PATIENCE", 0.3)
    monkeypatch.setattr(hub, "FORGOTTEN_AFTER", 0.3)
    cluster.script = Held()
    stream, reading = await begin(client, **{"X-Exo-On-Disconnect": "continue"})
    assert stream.text == "one"
    (task,) = cluster.states.state.tasks
    joined = asyncio.create_task(client.get(f"/v1/requests/{task}/stream"))
    await until(lambda: cluster.bus.server.subscriptions >= 2)
    cluster.lose_hub()

    def forget(*_states: object) -> None:
        """Do what a gateway does that was restarted."""

    monkeypatch.setattr(submissions.Submissions, "_carry", forget)
    await cluster.find_hub(lost=1)
    await reading
    assert [error["code"] for error in stream.errors] == ["cluster_merged"]
    assert '"code":"cluster_merged"' in (await joined).text


async def test_a_cancellation_without_a_hub_is_local_first_and_told_later(cluster: FakeCluster, serving: Any) -> None:
    cluster.script = Held()
    async with serving(command_timeout=0.3) as client:
        stream, reading = await begin(client)
        assert stream.status == 200
        (task,) = cluster.states.state.tasks
        cluster.lose_hub()
        refused = await client.post(f"/v1/cancel/{task}")
        assert refused.status_code == 503
        assert "will be cancelled" in refused.json()["error"]["message"]
        assert cluster.cancelled_here == [task]
        assert not cluster.cancelled
        await cluster.find_hub()
        await until(lambda: task in cluster.cancelled)
        await reading
        assert [error["code"] for error in stream.errors] == ["cancelled"]


async def test_a_client_that_leaves_without_a_hub_is_not_forgotten(cluster: FakeCluster, client: Client) -> None:
    cluster.script = Held()
    _, reading = await begin(client)
    (task,) = cluster.states.state.tasks
    cluster.lose_hub()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await asyncio.sleep(0.1)
    await cluster.find_hub()
    await until(lambda: task in cluster.cancelled)


async def test_a_cancellation_that_a_session_forgot_is_repeated(cluster: FakeCluster, client: Client) -> None:
    cluster.script = always([asyncio.Event()])
    asking = asyncio.create_task(client.post(URL, json=BODY))
    await until(lambda: bool(cluster.states.state.tasks))
    (task,) = cluster.states.state.tasks
    assert (await client.post(f"/v1/cancel/{task}")).status_code == 200
    assert (await asking).status_code == 499
    cluster.lose_hub()
    cluster.cancelled.clear()
    await cluster.find_hub(lost=1)
    await until(lambda: task in cluster.cancelled)
    await until(lambda: task not in cluster.states.state.tasks)
    assert cancelling.PATIENCE >= 60


async def test_a_command_waits_for_a_hub_and_is_decided_once(cluster: FakeCluster, client: Client) -> None:
    cluster.lose_hub()
    asking = asyncio.create_task(client.post("/v1/keys", json={"name": "x"}))
    await asyncio.sleep(0.1)
    await cluster.find_hub()
    assert (await asking).status_code == 201
    assert len(cluster.states.state.api_keys) == 1
