"""Requests that are wrong, huge or given up: a refusal with a stable code, and nothing left behind."""

import contextlib
import json
import socket
from collections.abc import Callable, Generator
from typing import Any

import httpx2
import psutil
import pytest

from support.node import NodeProcess, wait_for

URL = "/v1/chat/completions"


def body(**fields: Any) -> bytes:
    given = {"model": "exo/scripted", "messages": [{"role": "user", "content": "[[say:ok]]"}]}
    return json.dumps(given | fields).encode()


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


BAD: list[tuple[bytes, int, str]] = [
    (b"", 400, "invalid_request"),
    (b"{", 400, "invalid_request"),
    (b"[1, 2]", 400, "invalid_request"),
    (b"\x00\xff", 400, "invalid_request"),
    (b"[" * 200_000, 400, "invalid_request"),
    (body(messages=[]), 400, "invalid_request"),
    (body(messages="hello"), 400, "invalid_request"),
    (body(messages=[{"role": "king", "content": "x"}]), 400, "invalid_request"),
    (body(messages=[{"role": "user", "content": "\ud800"}]), 400, "invalid_request"),
    (body(temperature=-1), 400, "invalid_request"),
    (body(temperature=1e300), 400, "invalid_request"),
    (body(top_p=7), 400, "invalid_request"),
    (body(max_tokens=-5), 400, "invalid_request"),
    (body(max_tokens="many"), 400, "invalid_request"),
    (body(stop=["x"] * 99), 400, "invalid_request"),
    (body(logit_bias={"1": 1e9}), 400, "invalid_request"),
    (body(model="org/nothing"), 404, "model_not_found"),
    (body(model="../../etc/passwd"), 404, "model_not_found"),
    (body(messages=user("word " * 5_000)), 400, "context_length_exceeded"),
    (body(messages=user("word " * 240_000)), 400, "context_length_exceeded"),
    (body(messages=user("x" * (40 << 20))), 413, "payload_too_large"),
]


@contextlib.contextmanager
def left_as_found(node: NodeProcess) -> Generator[None]:
    """Nothing may be open afterwards that was not open before, and memory may not have grown much."""
    before, resident = count_open(node), psutil.Process(node.pid).memory_info().rss
    yield
    wait_for(lambda: count_open(node) == before, seconds=15, what=f"counts of {before}", node=node)
    assert psutil.Process(node.pid).memory_info().rss - resident < 150 << 20


def count_open(node: NodeProcess) -> dict[str, int]:
    lines = httpx2.get(f"{node.url}/metrics", timeout=10).raise_for_status().text.splitlines()
    relays = next(float(line.split()[1]) for line in lines if line.startswith("exo_relays_open"))
    monitor = json.loads((node.data / "nats" / "address.json").read_bytes())["monitor_url"]
    subscriptions = httpx2.get(f"{monitor}/varz", timeout=10).raise_for_status().json()["subscriptions"]
    return {"relays": int(relays), "tasks": len(node.state()["tasks"]), "subscriptions": subscriptions}


def test_each_is_refused_with_a_code_and_leaves_nothing(node: NodeProcess) -> None:
    with left_as_found(node), httpx2.Client(base_url=node.url, timeout=60) as client:
        for content, status, code in BAD:
            for stream in (False, True):
                sent = content.replace(b'{"model"', b'{"stream": true, "model"', 1) if stream else content
                answer = client.post(URL, content=sent)
                assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), sent[:120]
                assert answer.json()["error"]["message"]
        answer = client.post(URL, content=body())
        assert answer.json()["choices"][0]["message"]["content"] == "ok"


def test_no_prompt_is_in_state_events_or_the_log(node: NodeProcess) -> None:
    secret = "xylophone-4711"
    answer = httpx2.post(f"{node.url}{URL}", content=body(messages=user(f"[[say:{secret}]]")), timeout=60)
    assert answer.json()["choices"][0]["message"]["content"] == secret
    for path in ("/state", "/events?limit=10000"):
        assert secret not in httpx2.get(f"{node.url}{path}", timeout=30).text
    assert secret not in node.log()


def connect(node: NodeProcess) -> socket.socket:
    address = httpx2.URL(node.url)
    assert address.port is not None
    return socket.create_connection((address.host, address.port), timeout=30)


def send_head(connection: socket.socket, length: int) -> None:
    connection.sendall(f"POST {URL} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())


def hang_up_in_the_head(connection: socket.socket) -> None:
    connection.sendall(b"POST /v1/chat/comp")


def hang_up_in_the_body(connection: socket.socket) -> None:
    send_head(connection, 100)
    connection.sendall(b'{"model"')


def hang_up_behind_the_body(connection: socket.socket) -> None:
    content = body(messages=user("[[say:one two three]]"), stream=True)
    send_head(connection, len(content))
    connection.sendall(content)


def send_no_http(connection: socket.socket) -> None:
    connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    assert connection.recv(100).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("act", [hang_up_in_the_head, hang_up_in_the_body, hang_up_behind_the_body, send_no_http])
def test_clients_that_vanish_leave_nothing(node: NodeProcess, act: Callable[[socket.socket], None]) -> None:
    with left_as_found(node):
        for _ in range(10):
            with connect(node) as connection:
                act(connection)


def test_a_client_that_stops_reading_hurts_nobody(node: NodeProcess) -> None:
    words = " ".join(f"w{number}" for number in range(600))
    content = body(messages=user(f"[[say:{words}]]"), stream=True)
    with left_as_found(node):
        with connect(node) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            send_head(connection, len(content))
            connection.sendall(content)
            wait_for(lambda: node.state()["tasks"], seconds=10, what="the task", node=node)
            answer = httpx2.post(f"{node.url}{URL}", content=body(), timeout=60)
            assert answer.json()["choices"][0]["message"]["content"] == "ok"
        wait_for(lambda: not node.state()["tasks"], seconds=20, what="its end", node=node)
