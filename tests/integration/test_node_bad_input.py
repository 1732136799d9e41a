"""Clients that send too much or read too little: each is refused or cut off, and hurts nobody else.

Each test was seen to fail with its mechanism switched off; docs/fault-tests.md says how.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from support.chat import body_of, stream_chat
from support.node import NodeProcess, running_node, wait_for

STALL = 2
LONG = " ".join(["word"] * 8000)
HUGE = "many words " * 110_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    env = {"EXO_STALL_TIMEOUT": str(STALL), "EXO_MAX_BODY_MB": "2", "EXO_SCRIPTED": "tokens_per_second=800"}
    with running_node(tmp_path_factory.mktemp("node") / "data", env=env) as node:
        node.place()
        yield node


def relays_open(node: NodeProcess) -> float:
    lines = httpx2.get(f"{node.url}/metrics", timeout=10).raise_for_status().text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("exo_relays_open "))


@contextmanager
def stalled_client(node: NodeProcess, body: dict[str, Any]) -> Generator[None]:
    """Ask for a stream through a small window and never read from it."""
    address = urlsplit(node.url)
    assert address.port is not None
    payload = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((address.hostname, address.port))
        client.sendall(head.encode() + payload)
        yield


async def test_a_client_that_stops_reading_is_cut_off_and_others_are_not(node: NodeProcess) -> None:
    # With its alternatives a frame weighs kilobytes: more than the system buffers for a client.
    heavy = body_of(f"[[say:{LONG}]]", logprobs=True, top_logprobs=20)
    with stalled_client(node, heavy):
        (task,) = wait_for(lambda: node.state()["tasks"], seconds=10, what="the stalled request", node=node)
        async with httpx2.AsyncClient(timeout=30) as http:
            others = await asyncio.gather(
                *(stream_chat(http, node.url, body_of("[[say:not held up]]")) for _ in range(5))
            )
            assert {(other.text, other.done) for other in others} == {("not held up", 1)}
            assert relays_open(node) == 1
        wait_for(lambda: relays_open(node) == 0, seconds=STALL + 8, what="the cut", node=node)
    wait_for(lambda: not node.state()["tasks"], seconds=10, what="the end of the request", node=node)
    ended = {key: item for page in node.state()["ended_tasks"]["pages"] for key, item in page.items()}
    assert ended[task]["outcome"] == "cancelled"


async def test_a_prompt_of_more_than_a_megabyte_holds_nobody_up(node: NodeProcess) -> None:
    assert len(HUGE) > 1_200_000
    async with httpx2.AsyncClient(timeout=30) as http:
        refused, served = await asyncio.gather(
            stream_chat(http, node.url, body_of(HUGE)),
            stream_chat(http, node.url, body_of("[[say:beside it]]")),
        )
        assert (refused.status, refused.body["error"]["code"]) == (400, "context_length_exceeded")
        assert served.text == "beside it"
    assert_nothing_left(node)


async def test_a_body_of_unknown_length_over_the_limit_is_refused(node: NodeProcess) -> None:
    payload = json.dumps(body_of(HUGE * 2)).encode()
    assert len(payload) > 2_000_000

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(payload), 65536):
            yield payload[start : start + 65536]

    headers = {"Content-Type": "application/json"}
    async with httpx2.AsyncClient(timeout=30) as http:
        answer = await http.post(f"{node.url}/v1/chat/completions", content=pieces(), headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "payload_too_large")
        served = await stream_chat(http, node.url, body_of("[[say:as before]]"))
        assert served.text == "as before"
    assert_nothing_left(node)


def assert_nothing_left(node: NodeProcess) -> None:
    wait_for(lambda: not node.state()["tasks"], seconds=10, what="the end of all tasks", node=node)
    wait_for(lambda: relays_open(node) == 0, seconds=10, what="the end of all relays", node=node)
