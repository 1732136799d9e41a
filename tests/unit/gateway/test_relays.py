"""Answers on their way: gaps, lost messages, clients that leave or stop reading, ends without a last chunk."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from exo.streams import subjects
from exo.streams.codec import decode_stored_request, encode
from exo.streams.codes import Code
from exo.streams.commands import CancelTask
from exo.streams.events import TaskFailed, TasksFailed
from exo.streams.ids import TaskId
from exo.streams.layout import REQUESTS
from exo.streams.requests import GenerationRequest
from support.fake_cluster import NODE, FakeCluster, Piece, always, say
from support.gateway import BODY, Client, pause, read_stream, until

URL = "/v1/chat/completions"


class Held:
    """A script that says one word, waits, and says another."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    def __call__(self, _request: GenerationRequest) -> Sequence[Piece]:
        admitted, first, second, done = say("one", " two")
        return [admitted, first, self.gate, second, done]


def running_task(cluster: FakeCluster) -> TaskId:
    return next(iter(cluster.states.state.tasks))


async def start(client: Client, **headers: str) -> tuple[httpx2.Response, Any]:
    """Open a stream and read until its first word."""
    request = client.build_request("POST", URL, json={**BODY, "stream": True}, headers=headers)
    response = await client.send(request, stream=True)
    assert response.status_code == 200
    lines = response.aiter_lines()
    async for line in lines:
        if '"content":"one"' in line:
            break
    return response, lines


async def test_a_lost_message_is_read_again(cluster: FakeCluster, client: Client) -> None:
    def lossy(_request: GenerationRequest) -> Sequence[Piece]:
        return say("a", "b", "c", "d")

    cluster.script = lossy
    deliver = cluster.bus.server.listen

    def listen(pattern: str, handler: Any) -> Any:
        if not pattern.startswith("exo.tokens."):
            return deliver(pattern, handler)

        def drop_b(delivery: Any) -> None:
            if b'"b"' not in delivery.payload:
                handler(delivery)

        return deliver(pattern, drop_b)

    cluster.bus.server.listen = listen  # type: ignore[method-assign]
    stream, _ = await read_stream(client, BODY)
    assert stream.text == "abcd"
    assert stream.ids == ["0.0", "1.0", "2.0", "3.0", "4.0", "5.0", "5.1"]


async def test_a_lost_end_is_read_after_the_fact(cluster: FakeCluster, client: Client) -> None:
    deliver = cluster.bus.server.listen

    def listen(pattern: str, handler: Any) -> Any:
        if not pattern.startswith("exo.tokens."):
            return deliver(pattern, handler)
        return deliver(pattern, lambda delivery: None if b'"done"' in delivery.payload else handler(delivery))

    cluster.bus.server.listen = listen  # type: ignore[method-assign]
    answer = await client.post(URL, json=BODY)
    assert answer.json()["choices"][0]["message"]["content"] == "Hello world"


async def test_chunks_sent_while_disconnected_arrive_after_the_return(cluster: FakeCluster, client: Client) -> None:
    cluster.script = held = Held()
    response, lines = await start(client)
    cluster.gateway_bus.disconnect()
    held.gate.set()
    await asyncio.sleep(0.05)
    cluster.gateway_bus.reconnect()
    rest = [line async for line in lines]
    await response.aclose()
    assert any('"content":" two"' in line for line in rest)
    assert "data: [DONE]" in rest


async def test_an_end_that_was_never_sent_becomes_one_error(cluster: FakeCluster, client: Client) -> None:
    cluster.script = Held()
    response, lines = await start(client)
    task = running_task(cluster)
    failed = TaskFailed(node=NODE, task=task, last_index=1, code=Code.RUNNER_FAILED, message="signal 9")
    await cluster.record(failed)
    data = [line for line in [line async for line in lines] if line.startswith("data:")]
    await response.aclose()
    assert len(data) == 1
    assert '"code":"runner_failed"' in data[0]


async def test_the_master_can_end_a_whole_answer(cluster: FakeCluster, client: Client) -> None:
    cluster.script = Held()
    asking = asyncio.create_task(client.post(URL, json=BODY))
    await until(lambda: bool(cluster.states.state.tasks))
    await cluster.record(TasksFailed(tasks=(running_task(cluster),), code=Code.NODE_TIMED_OUT, message="it is gone"))
    answer = await asking
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "node_timed_out"


async def test_removing_the_instance_ends_its_streams(cluster: FakeCluster, client: Client) -> None:
    cluster.script = Held()
    response, lines = await start(client)
    assert (await client.delete("/instance/instance-1")).status_code == 200
    data = [line for line in [line async for line in lines] if line.startswith("data:")]
    await response.aclose()
    assert '"code":"instance_removed"' in data[-1]


async def test_a_client_that_hangs_up_cancels_and_leaves_nothing(cluster: FakeCluster, client: Client) -> None:
    before = cluster.bus.server.subscriptions
    cluster.script = Held()
    response, _ = await start(client)
    task = running_task(cluster)
    await response.aclose()
    await until(lambda: task in cluster.cancelled)
    await until(lambda: cluster.bus.server.subscriptions == before)
    assert not cluster.states.state.tasks


async def test_a_client_that_hangs_up_before_the_first_chunk_cancels(cluster: FakeCluster, client: Client) -> None:
    before = cluster.bus.server.subscriptions
    silence = asyncio.Event()
    cluster.script = always([silence])
    for stream in (True, False):
        cluster.cancelled.clear()
        with pytest.raises(httpx2.ReadTimeout):
            await client.post(URL, json={**BODY, "stream": stream}, timeout=0.3)
        await until(lambda: bool(cluster.cancelled))
    await until(lambda: cluster.bus.server.subscriptions == before)


async def test_with_continue_the_request_runs_on(cluster: FakeCluster, client: Client) -> None:
    cluster.script = held = Held()
    response, _ = await start(client, **{"X-Exo-On-Disconnect": "continue"})
    task = running_task(cluster)
    await response.aclose()
    held.gate.set()
    await until(lambda: cluster.states.state.ended_tasks.get(task) is not None)
    assert task not in cluster.cancelled
    ended = cluster.states.state.ended_tasks.get(task)
    assert ended is not None
    assert ended.outcome == "finished"


async def test_cancel_ends_the_stream_with_its_code(cluster: FakeCluster, client: Client) -> None:
    cluster.script = Held()
    response, lines = await start(client)
    task = running_task(cluster)
    cancelled = await client.post(f"/v1/cancel/chatcmpl-{task}")
    assert cancelled.json() == {"message": "Command cancelled.", "command_id": f"chatcmpl-{task}"}
    data = [line for line in [line async for line in lines] if line.startswith("data:")]
    await response.aclose()
    assert '"code":"cancelled"' in data[-1]
    again = await client.post(f"/v1/cancel/{task}")
    assert again.status_code == 404


async def test_a_client_that_stops_reading_is_cut_and_others_are_not(cluster: FakeCluster, serving: Any) -> None:
    def script(request: GenerationRequest) -> Sequence[Piece]:
        return say("short") if request.max_tokens else say(*["x" * 100_000] * 100)

    cluster.script = script
    async with serving(stall_timeout=0.5) as client:
        writer = await _open_and_stall(client)
        stream, _ = await read_stream(client, {**BODY, "max_tokens": 5})
        assert stream.finishes == ["stop"]
        await until(lambda: not cluster.states.state.tasks)
        metrics = ""

        async def look() -> None:
            nonlocal metrics
            await asyncio.sleep(0.05)
            metrics = (await client.get("/metrics")).text

        await until(lambda: "exo_relays_open 0.0" in metrics, turn=look)
        writer.transport.abort()


async def _open_and_stall(client: Client) -> asyncio.StreamWriter:
    """Ask for a stream on a raw socket with a tiny window, and read nothing."""
    host, port = client.base_url.host, client.base_url.port
    assert port is not None
    reader, writer = await asyncio.open_connection(host, port, limit=1024)
    body = encode({**BODY, "stream": True})
    head = f"POST {URL} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    await reader.read(10)
    return writer


async def test_the_prompt_is_forgotten_when_the_answer_is_out(cluster: FakeCluster, client: Client) -> None:
    cluster.script = held = Held()
    response, lines = await start(client)
    task = running_task(cluster)
    stored = await cluster.bus.get_last(REQUESTS.name, subjects.request(task))
    assert stored is not None
    assert decode_stored_request(stored.payload).request.messages[0].text() == "hi"
    held.gate.set()
    async for _ in lines:
        pass
    await response.aclose()

    async def look() -> None:
        nonlocal stored
        await pause()
        stored = await cluster.bus.get_last(REQUESTS.name, subjects.request(task))

    await until(lambda: stored is not None and not decode_stored_request(stored.payload).request.messages, turn=look)


async def test_silence_is_filled_with_comments(cluster: FakeCluster, serving: Any) -> None:
    cluster.script = held = Held()
    async with serving(keep_alive=0.2) as client:
        response, lines = await start(client)
        comments = 0
        async for line in lines:
            comments += line == ": keep-alive"
            if comments == 2:
                held.gate.set()
        await response.aclose()
    assert comments >= 2


async def test_a_hundred_streams_at_once_have_no_gap(cluster: FakeCluster, client: Client) -> None:
    words = [f"w{number} " for number in range(30)]
    cluster.script = always(say(*words))
    streams = await asyncio.gather(*(read_stream(client, BODY) for _ in range(100)))
    assert {stream.text for stream, _ in streams} == {"".join(words)}
    assert cluster.commands
    assert not any(isinstance(command, CancelTask) for command in cluster.commands)
