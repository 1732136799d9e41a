"""A prompt that no message can carry, through a real node: it travels by reference and leaves nothing behind."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from exo.streams.layout import BLOBS
from support.chat import body_of
from support.node import NodeProcess, running_node, wait_for

MAX_BODY_MB = 9
TOO_LONG = "five megabytes " * 350_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data", env={"EXO_MAX_BODY_MB": str(MAX_BODY_MB)}) as node:
        node.place()
        yield node


def object_store_of(node: NodeProcess) -> dict[str, Any]:
    """Ask the broker's monitor what the object store holds and has held."""
    monitor = json.loads((node.data / "nats" / "address.json").read_bytes())["monitor_url"]
    report = httpx2.get(f"{monitor}/jsz?streams=1", timeout=10).raise_for_status().json()
    streams = [stream for account in report["account_details"] for stream in account["stream_detail"]]
    return next(stream["state"] for stream in streams if stream["name"] == f"OBJ_{BLOBS.name}")


def ask(node: NodeProcess, prompt: str) -> httpx2.Response:
    body = body_of(prompt) | {"stream": False}
    return httpx2.post(f"{node.url}/v1/chat/completions", json=body, timeout=60)


def test_a_large_prompt_reaches_the_runner_and_is_forgotten(node: NodeProcess) -> None:
    assert len(TOO_LONG) > 5_000_000
    refused = ask(node, TOO_LONG)
    error = refused.json()["error"]
    # Only the runner has the tokenizer: that it counted shows that the whole text came to it.
    assert (refused.status_code, error["code"]) == (400, "context_length_exceeded"), error
    assert object_store_of(node)["last_seq"] >= 6

    over = ask(node, TOO_LONG * 2)
    assert (over.status_code, over.json()["error"]["code"]) == (413, "payload_too_large")

    assert ask(node, "[[say:as before]]").json()["choices"][0]["message"]["content"] == "as before"
    wait_for(lambda: object_store_of(node)["messages"] == 0, seconds=15, what="an empty object store", node=node)
