"""What a client sees of the rarer faults: a broker or a runner that dies early, and answers no longer kept.

Each test was seen to fail with its mechanism switched off; docs/fault-tests.md says how.
"""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import httpx2

from support.chat import Stream, body_of, resume_chat, stream_chat
from support.node import NodeProcess, running_node, wait_for

WORDS = " ".join(f"word{number}" for number in range(240))
STREAMS = 5
HANG = 1.0
"""Seconds in which some hundred words are sent to a broker that stands still."""
SLOW = {"EXO_SCRIPTED": "tokens_per_second=100"}


def statuses(node: NodeProcess) -> set[str]:
    return {runner["status"]["type"] for runner in node.state()["runners"].values()}


async def test_broker_killed_while_a_whole_answer_is_made(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", env=SLOW) as node:
        node.place()
        async with httpx2.AsyncClient(timeout=30) as http:
            body = body_of(f"[[say:{WORDS}]]") | {"stream": False}
            asking = asyncio.create_task(http.post(f"{node.url}/v1/chat/completions", json=body))
            while not await asyncio.to_thread(is_generating, node):
                assert not asking.done()
            broker = node.broker_pid()
            assert broker is not None
            os.kill(broker, signal.SIGKILL)
            assert not asking.done()
            answer = await asking
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert choice["message"]["content"] == WORDS
    assert choice["finish_reason"] == "stop"


def is_generating(node: NodeProcess) -> bool:
    state = node.state()
    gauge = state["telemetry"].get(state["master"], {}).get("throughput")
    return gauge is not None and gauge["gauge"]["active_tasks"] > 0


async def test_runner_killed_while_it_loads_is_started_again(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", env={"EXO_SCRIPTED": "load_seconds=2"}) as node:
        placed = httpx2.post(f"{node.url}/place_instance", json={"model_id": "exo/scripted"}, timeout=30)
        assert placed.status_code == 200, placed.text
        wait_for(lambda: statuses(node) == {"loading"}, seconds=20, what="loading", node=node)
        first = node.runner_pid()
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: statuses(node) == {"failed"}, seconds=10, what="the failure in State", node=node)
        async with httpx2.AsyncClient(timeout=30) as http:
            refused = await stream_chat(http, node.url, body_of("[[say:too early]]"))
            assert (refused.status, refused.body["error"]["code"]) == (503, "model_loading")
            assert "SIGKILL" in refused.body["error"]["message"]
            node.await_ready("exo/scripted", seconds=20)
            assert node.runner_pid() != first
            assert (await stream_chat(http, node.url, body_of("[[say:now it is up]]"))).text == "now it is up"


async def test_resuming_an_answer_that_is_no_longer_kept(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        node.place()
        async with httpx2.AsyncClient(timeout=30) as http:
            whole = await stream_chat(http, node.url, body_of("[[say:kept in memory only]]"))
            request = whole.frames[0]["id"]
            assert (await resume_chat(http, node.url, request, after="")).frames == whole.frames
        # Answers live in the broker's memory: a restart of the node stands for their time running out.
        assert node.stop() == 0
        node.start()
        async with httpx2.AsyncClient(timeout=30) as http:
            gone = await resume_chat(http, node.url, request, after=whole.ids[0])
            assert (gone.status, error_of(gone.body)["code"]) == (410, "resume_expired")
            unknown = await resume_chat(http, node.url, "chatcmpl-0000", after="")
            assert (unknown.status, error_of(unknown.body)["code"]) == (404, "task_not_found")


def error_of(body: Any) -> dict[str, Any]:
    assert body["error"]["message"]
    return body["error"]


async def open_streams(http: httpx2.AsyncClient, node: NodeProcess) -> tuple[list[Stream], list[asyncio.Task[Stream]]]:
    """Start some streams, and wait until each has given some text."""
    records = [Stream() for _ in range(STREAMS)]
    body = body_of(f"[[say:{WORDS}]]")
    tasks = [asyncio.create_task(stream_chat(http, node.url, body, record=record)) for record in records]
    async with asyncio.timeout(30):
        await asyncio.gather(*(record.started.wait() for record in records))
    return records, tasks


async def test_broker_that_hangs_and_then_dies_loses_nothing(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", env=SLOW) as node:
        node.place()
        async with httpx2.AsyncClient(timeout=30) as http:
            records, tasks = await open_streams(http, node)
            broker = node.broker_pid()
            assert broker is not None
            # What is sent meanwhile lies in the socket of a process that will never read it.
            os.kill(broker, signal.SIGSTOP)
            await asyncio.sleep(HANG)
            os.kill(broker, signal.SIGKILL)
            async with asyncio.timeout(30):
                await asyncio.gather(*tasks)
    for record in records:
        assert record.text == WORDS
        assert (record.finishes, record.done) == (["stop"], 1)


async def test_runner_and_broker_killed_at_once(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", env=SLOW) as node:
        node.place()
        async with httpx2.AsyncClient(timeout=30) as http:
            records, tasks = await open_streams(http, node)
            broker = node.broker_pid()
            assert broker is not None
            os.kill(broker, signal.SIGKILL)
            os.kill(node.runner_pid(), signal.SIGKILL)
            async with asyncio.timeout(30):
                await asyncio.gather(*tasks)
            for record in records:
                assert [error["code"] for error in record.errors] == ["runner_failed"]
                assert (record.endings(), record.done) == (1, 0)
            wait_for(lambda: not node.state()["tasks"], seconds=10, what="the end of all tasks", node=node)
            node.await_ready("exo/scripted", seconds=20)
            assert (await stream_chat(http, node.url, body_of("[[say:both are back]]"))).text == "both are back"
