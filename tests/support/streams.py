"""Streamed answers with the moment of each piece, so that a test can say what a fault did to them.

All words of `WORDS` differ: a text that is equal to it has no gap, no repeat and no wrong order.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx2

from support.chat import Stream, body_of, stream_chat
from support.node import NodeProcess

WORDS = " ".join(f"word{number}" for number in range(200))
RATE = 40
"""Tokens per second of one stream; a word is two or three tokens."""
SLOW = {"EXO_SCRIPTED": f"tokens_per_second={RATE}", "EXO_MAX_CONCURRENT_REQUESTS": "32"}


@dataclass
class TimedStream(Stream):
    """A stream that knows when each piece of text came."""

    times: list[float] = field(default_factory=list)

    def take(self, line: str) -> None:
        had = len(self.text)
        super().take(line)
        if len(self.text) > had:
            self.times.append(time.monotonic())

    def longest_pause(self) -> float:
        """Give the longest time between two pieces, in seconds."""
        return max((later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)), default=0)

    def check_whole(self, text: str = WORDS) -> None:
        """Hold the stream to be what it would have been without any fault."""
        assert (self.status, self.errors, self.broken) == (200, [], False), self.body or self.errors
        assert self.text == text
        assert (self.finishes, self.done) == (["stop"], 1)
        places = [tuple(map(int, place.split("."))) for place in self.ids]
        assert places == sorted(set(places))


class RunningStreams:
    """Streams that were opened at several nodes and have all begun; an async context manager."""

    def __init__(self, nodes: Sequence[NodeProcess], *, each: int = 5, text: str = WORDS) -> None:
        self.by_node = {node: [TimedStream() for _ in range(each)] for node in nodes}
        self._body = body_of(f"[[say:{text}]]")
        self._http = httpx2.AsyncClient(timeout=60, limits=httpx2.Limits(max_connections=None))
        self._tasks: list[asyncio.Task[Stream]] = []

    @property
    def records(self) -> list[TimedStream]:
        return [record for records in self.by_node.values() for record in records]

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(stream_chat(self._http, node.url, self._body, record=record))
            for node, records in self.by_node.items()
            for record in records
        ]
        async with asyncio.timeout(30):
            await asyncio.gather(*(record.started.wait() for record in self.records))
        return self

    async def end(self, *, seconds: float = 60) -> list[TimedStream]:
        """Wait until every client saw its end."""
        async with asyncio.timeout(seconds):
            await asyncio.gather(*self._tasks)
        return self.records

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()


def say(node: NodeProcess, text: str) -> str:
    """Ask a node for a text, whole; gives what came, or the code of the refusal."""
    body = body_of(f"[[say:{text}]]") | {"stream": False}
    answer = httpx2.post(f"{node.url}/v1/chat/completions", json=body, timeout=60).json()
    return answer["error"]["code"] if "error" in answer else answer["choices"][0]["message"]["content"]
