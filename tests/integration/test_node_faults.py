"""What a client sees when a part of a node dies, read over HTTP from another process.

Each test was seen to fail with its mechanism switched off; docs/fault-tests.md says how.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.chat import Stream, body_of, resume_chat, stream_chat
from support.node import NodeProcess, running_node, wait_for

STREAMS = 20
WORDS = " ".join(f"word{number}" for number in range(120))
SLOW = {"EXO_SCRIPTED": "tokens_per_second=60", "EXO_MAX_CONCURRENT_REQUESTS": str(STREAMS)}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data", env=SLOW) as node:
        node.place()
        yield node


async def open_streams(
    client: httpx2.AsyncClient, node: NodeProcess
) -> tuple[list[Stream], list[asyncio.Task[Stream]]]:
    """Start 20 streams, and wait until each has given some text."""
    records = [Stream() for _ in range(STREAMS)]
    tasks = [
        asyncio.create_task(stream_chat(client, node.url, body_of(f"[[say:{WORDS}]]"), record=record))
        for record in records
    ]
    async with asyncio.timeout(30):
        await asyncio.gather(*(record.started.wait() for record in records))
    return records, tasks


async def await_ends(tasks: list[asyncio.Task[Stream]]) -> None:
    """Wait until every client has seen its end, or has failed to in time."""
    async with asyncio.timeout(40):
        await asyncio.gather(*tasks)


def client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=60, limits=httpx2.Limits(max_connections=None))


def answer_of(node: NodeProcess, prompt: str = "[[say:all is well]]") -> Any:
    body = body_of(prompt) | {"stream": False}
    return httpx2.post(f"{node.url}/v1/chat/completions", json=body, timeout=60).json()


def ended_tasks(node: NodeProcess) -> dict[str, Any]:
    return {key: task for page in node.state()["ended_tasks"]["pages"] for key, task in page.items()}


def assert_serves(node: NodeProcess) -> None:
    wait_for(node.is_ready, seconds=30, what="/ready", node=node)
    node.await_ready("exo/scripted")
    assert answer_of(node)["choices"][0]["message"]["content"] == "all is well", node.log()


async def test_runner_killed_with_streams_running(node: NodeProcess) -> None:
    async with client() as http:
        records, tasks = await open_streams(http, node)
        os.kill(node.runner_pid(), signal.SIGKILL)
        await await_ends(tasks)
    for record in records:
        assert record.endings() == 1, record
        assert [error["code"] for error in record.errors] == ["runner_failed"]
        assert WORDS.startswith(record.text)
    assert_serves(node)
    failed = [task for task in ended_tasks(node).values() if task["outcome"] == "failed"]
    assert len(failed) == STREAMS
    assert {task["code"] for task in failed} == {"runner_failed"}
    assert "SIGKILL" in failed[0]["message"]


def test_runner_killed_at_rest_is_started_again(node: NodeProcess) -> None:
    first = node.runner_pid()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: not node.serves("exo/scripted"), seconds=10, what="the failure in State", node=node)
    assert_serves(node)
    assert node.runner_pid() != first


async def test_runner_that_is_stopped_is_noticed_and_replaced(node: NodeProcess) -> None:
    async with client() as http:
        records, tasks = await open_streams(http, node)
        os.kill(node.runner_pid(), signal.SIGSTOP)
        await await_ends(tasks)
    assert {record.endings() for record in records} == {1}
    assert {error["code"] for record in records for error in record.errors} == {"runner_failed"}
    assert_serves(node)


async def test_broker_killed_with_streams_running_loses_nothing(node: NodeProcess) -> None:
    async with client() as http:
        records, tasks = await open_streams(http, node)
        broker = node.broker_pid()
        assert broker is not None
        os.kill(broker, signal.SIGKILL)
        await await_ends(tasks)
        for record in records:
            assert record.text == WORDS, record
            assert record.finishes == ["stop"]
            assert record.done == 1
            assert len(set(record.ids)) == len(record.ids)
            # The new server's memory is empty: what it has of these answers was published again.
            again = await resume_chat(http, node.url, record.frames[0]["id"], after="")
            assert (again.status, again.frames, again.ids) == (200, record.frames, record.ids)
    wait_for(lambda: not node.state()["tasks"], seconds=10, what="the end of all tasks", node=node)
    ended = ended_tasks(node)
    outcomes = {ended[record.frames[0]["id"].removeprefix("chatcmpl-")]["outcome"] for record in records}
    assert outcomes == {"finished"}
    assert_serves(node)


def test_broker_killed_at_rest(node: NodeProcess) -> None:
    first = node.broker_pid()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: node.broker_pid() not in {first, None}, seconds=10, what="a new broker", node=node)
    assert_serves(node)


async def test_node_killed_with_streams_running(node: NodeProcess) -> None:
    async with client() as http:
        records, tasks = await open_streams(http, node)
        node.kill()
        await await_ends(tasks)
    assert all(record.broken for record in records)
    assert {record.endings() for record in records} == {0}

    node.start()
    assert_serves(node)
    ended = ended_tasks(node)
    async with client() as http:
        for record in records:
            request = record.frames[0]["id"]
            assert ended[request.removeprefix("chatcmpl-")]["code"] == "node_restarted"
            resumed = await resume_chat(http, node.url, request, after=record.ids[-1])
            assert resumed.status == 410
            assert resumed.body["error"]["code"] == "node_restarted"


async def test_a_stream_resumes_from_any_frame_without_gap_or_repeat(node: NodeProcess) -> None:
    async with client() as http:
        whole = await stream_chat(http, node.url, body_of(f"[[say:{WORDS}]]", stream_options={"include_usage": True}))
        request = whole.frames[0]["id"]
        for place in range(0, len(whole.ids), 7):
            rest = await resume_chat(http, node.url, request, after=whole.ids[place])
            assert rest.ids == whole.ids[place + 1 :]
            assert rest.frames == whole.frames[place + 1 :]


async def test_a_stream_left_behind_goes_on_when_asked_to(node: NodeProcess) -> None:
    async with client() as http:
        keep = {"X-Exo-On-Disconnect": "continue"}
        start = await stream_chat(http, node.url, body_of(f"[[say:{WORDS}]]"), stop_after=5, headers=keep)
        rest = await resume_chat(http, node.url, start.frames[0]["id"], after=start.ids[-1])
    assert start.text + rest.text == WORDS
    assert rest.finishes == ["stop"]


async def test_a_client_that_hangs_up_frees_its_slot(node: NodeProcess) -> None:
    async with client() as http:
        start = await stream_chat(http, node.url, body_of(f"[[say:{WORDS}]]"), stop_after=3)
    task = start.frames[0]["id"].removeprefix("chatcmpl-")
    wait_for(lambda: task not in node.state()["tasks"], seconds=5, what="the task's end", node=node)
    assert ended_tasks(node)[task]["outcome"] == "cancelled"


@pytest.mark.parametrize("node_env", [{"EXO_SCRIPTED": "fail_load=1", "EXO_MAX_INSTANCE_RETRIES": "2"}])
def test_a_runner_that_never_loads_is_given_up_with_its_reason(tmp_path: Path, node_env: dict[str, str]) -> None:
    with running_node(tmp_path / "data", env=node_env) as node:
        answer = httpx2.post(f"{node.url}/place_instance", json={"model_id": "exo/scripted"}, timeout=30)
        assert answer.status_code == 200
        wait_for(lambda: node.state()["removed_instances"], seconds=60, what="the removal", node=node)
        (removed,) = node.state()["removed_instances"]
        assert removed["model_id"] == "exo/scripted"
        assert removed["code"] == "runner_failed"
        assert removed["reason"]
        assert removed["evidence"]
        assert node.state()["instances"] == {}
        refusal = answer_of(node)
        assert refusal["error"]["code"] == "model_not_running"
