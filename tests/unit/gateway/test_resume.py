"""Streams continued behind any frame: the same frames, and honest refusals once they cannot be had."""

import asyncio

from exo.streams import subjects
from exo.streams.chunks import Admitted, Failed, Text
from exo.streams.codes import Code
from exo.streams.events import TaskFailed
from exo.streams.ids import TaskId
from exo.streams.layout import REQUESTS, TOKENS
from support.fake_cluster import NODE, FakeCluster, always, say
from support.gateway import BODY, Client, read_stream, until


def frames_of(text: str) -> list[str]:
    """The frames with an id, as they came over the wire but for comments."""
    lines = [line for line in text.split("\n") if not line.startswith(":")]
    return [frame for frame in "\n".join(lines).split("\n\n") if frame.startswith("id: ")]


async def finished(cluster: FakeCluster, client: Client) -> tuple[str, list[str]]:
    """Let one answer run to its end; gives its public id and its frames."""
    stream, text = await read_stream(client, {**BODY, "stream_options": {"include_usage": True}})
    public_id = stream.frames[0]["id"]

    task = TaskId(public_id.removeprefix("chatcmpl-"))
    await until(lambda: cluster.states.state.ended_tasks.get(task) is not None)
    return public_id, frames_of(text)


async def test_a_stream_continues_behind_any_frame(cluster: FakeCluster, client: Client) -> None:
    cluster.script = always(say("a", "b", "c"))
    public_id, frames = await finished(cluster, client)
    assert len(frames) == 7
    for number, frame in enumerate(frames):
        last = frame.partition("\n")[0].removeprefix("id: ")
        again = await client.get(f"/v1/requests/{public_id}/stream", headers={"Last-Event-ID": last})
        assert again.status_code == 200
        assert frames_of(again.text) == frames[number + 1 :]


async def test_without_a_place_it_begins_anew_by_either_id(cluster: FakeCluster, client: Client) -> None:
    public_id, frames = await finished(cluster, client)
    for identifier in (public_id, public_id.removeprefix("chatcmpl-")):
        again = await client.get(f"/v1/requests/{identifier}/stream")
        assert frames_of(again.text) == frames


async def test_a_running_stream_is_joined(cluster: FakeCluster, client: Client) -> None:
    gate = asyncio.Event()
    admitted, first, second, done = say("one", " two")
    cluster.script = always([admitted, first, gate, second, done])
    asking = asyncio.create_task(read_stream(client, BODY))
    await until(lambda: bool(cluster.states.state.tasks))
    task = next(iter(cluster.states.state.tasks))
    joining = asyncio.create_task(client.get(f"/v1/requests/{task}/stream", headers={"Last-Event-ID": "0.0"}))
    await asyncio.sleep(0.1)
    gate.set()
    _, text = await asking
    joined = await joining
    assert frames_of(joined.text) == frames_of(text)[1:]


async def test_once_the_chunks_are_gone_it_is_410(cluster: FakeCluster, client: Client) -> None:
    public_id, _ = await finished(cluster, client)
    await cluster.bus.purge(TOKENS.name)
    again = await client.get(f"/v1/requests/{public_id}/stream")
    assert again.status_code == 410
    assert again.json()["error"]["code"] == "resume_expired"


async def test_a_running_stream_whose_first_chunks_are_gone_is_410(cluster: FakeCluster, client: Client) -> None:
    gate = asyncio.Event()
    admitted, first, second, done = say("one", " two")
    cluster.script = always([admitted, first, gate, second, done])
    asking = asyncio.create_task(read_stream(client, BODY))
    await until(lambda: bool(cluster.states.state.tasks))
    task = next(iter(cluster.states.state.tasks))
    await until(lambda: cluster.bus.server.stream(TOKENS.name).last_sequence >= 2)
    await cluster.bus.purge(TOKENS.name, below=2)
    expired = await client.get(f"/v1/requests/{task}/stream")
    assert (expired.status_code, expired.json()["error"]["code"]) == (410, "resume_expired")
    gate.set()
    stream, _ = await asking
    assert stream.text == "one two"


async def test_a_resumed_answer_is_not_counted_again(cluster: FakeCluster, client: Client) -> None:
    public_id, _ = await finished(cluster, client)
    await client.get(f"/v1/requests/{public_id}/stream")
    assert 'exo_tokens_total{kind="completion"} 2.0' in (await client.get("/metrics")).text


async def test_once_the_request_is_gone_it_is_410_too(cluster: FakeCluster, client: Client) -> None:
    public_id, _ = await finished(cluster, client)
    task = TaskId(public_id.removeprefix("chatcmpl-"))
    await cluster.bus.purge(REQUESTS.name, subject=subjects.request(task))
    assert (await client.get(f"/v1/requests/{public_id}/stream")).status_code == 410


async def test_a_restart_is_410_with_its_own_code(cluster: FakeCluster, client: Client) -> None:
    never = asyncio.Event()
    cluster.script = always([Admitted(1, 0, 5), Text(1, 1, "one"), never])
    asking = asyncio.create_task(read_stream(client, BODY))
    await until(lambda: bool(cluster.states.state.tasks))
    task = next(iter(cluster.states.state.tasks))
    failure = TaskFailed(node=NODE, task=task, last_index=-1, code=Code.NODE_RESTARTED, message="restarted")
    await cluster.record(failure)
    stream, _ = await asking
    assert stream.errors[0]["code"] == "node_restarted"
    again = await client.get(f"/v1/requests/chatcmpl-{task}/stream")
    assert again.status_code == 410
    assert again.json()["error"]["code"] == "node_restarted"


async def test_a_failed_stream_is_repeated_with_its_error(cluster: FakeCluster, client: Client) -> None:
    cluster.script = always([Admitted(1, 0, 5), Text(1, 1, "one"), Failed(1, 2, Code.ENGINE_FAILED, "broke")])
    stream, text = await read_stream(client, BODY)
    again = await client.get(f"/v1/requests/{stream.frames[0]['id']}/stream")
    assert frames_of(again.text) == frames_of(text)


async def test_an_unknown_request_is_404(client: Client) -> None:
    for identifier in ("chatcmpl-unknown", "UPPER", "a.b", "chatcmpl-"):
        response = await client.get(f"/v1/requests/{identifier}/stream")
        assert (response.status_code, response.json()["error"]["code"]) == (404, "task_not_found"), identifier


async def test_a_place_that_is_none_is_400(client: Client) -> None:
    for place in ("x", "1", "1.", ".1", "-1.0", "1.0.0", "\u00b2.0"):
        response = await client.get("/v1/requests/some/stream", params={"last_event_id": place})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "Last-Event-ID"), place
