"""Helpers of the gateway's tests: one body that works, and streams read to their end."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import httpx2

from exo.gateway.listening import bind
from exo.gateway.serve import serve
from support.chat import Stream
from support.fake_cluster import FakeCluster

Client = httpx2.AsyncClient
BODY: dict[str, Any] = {"model": "org/model", "messages": [{"role": "user", "content": "hi"}]}


async def read_stream(client: Client, body: dict[str, Any], **headers: str) -> tuple[Stream, str]:
    """Ask for a stream and read it to its end; gives it parsed and as text."""
    stream = Stream()
    lines: list[str] = []
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}, headers=sent) as response:
        stream.status = response.status_code
        async for line in response.aiter_lines():
            lines.append(line)
            stream.take(line)
    return stream, "\n".join(lines) + "\n"


@asynccontextmanager
async def open_client(cluster: FakeCluster, **settings: Any) -> AsyncGenerator[Client]:
    """Serve a cluster over real HTTP on loopback and give a client of it."""
    listener = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with serve(cluster.app(**settings), listener), Client(base_url=url, timeout=20) as client:
        yield client


async def pause() -> None:
    """Let others run for a moment."""
    await asyncio.sleep(0.01)


async def until(
    condition: Callable[[], bool], *, turn: Callable[[], Awaitable[object]] = pause, within: float = 10
) -> None:
    """Take turns until a condition holds; fails after `within` seconds."""
    deadline = monotonic() + within
    while not condition():
        assert monotonic() < deadline, "the condition did not come true in time"
        await turn()
