"""A node's API played from a script, for tests of what the command line makes of its answers."""

import json
from collections.abc import Callable
from typing import Any

import httpx2

from exo.ops.client import NodeClient

Handler = Callable[[httpx2.Request], httpx2.Response]


class ScriptedApi:
    """Answers by method and path; keeps what it was asked."""

    def __init__(self, routes: dict[str, Any]) -> None:
        self.routes = routes
        self.asked: list[tuple[str, Any]] = []

    def client(self) -> NodeClient:
        return NodeClient("http://node:1", transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        name = f"{request.method} {request.url.path}"
        self.asked.append((name, json.loads(request.content) if request.content else dict(request.url.params)))
        if name not in self.routes:
            return refuse(404, "not_found", f"no {name}")
        answer = self.routes[name]
        if isinstance(answer, list) and answer and isinstance(answer[0], httpx2.Response):
            answer = answer.pop(0)
        return answer if isinstance(answer, httpx2.Response) else httpx2.Response(200, json=answer)


def refuse(status: int, code: str, message: str) -> httpx2.Response:
    """A refusal in OpenAI's shape."""
    return httpx2.Response(status, json={"error": {"message": message, "type": "t", "param": None, "code": code}})


def stream(*events: Any) -> httpx2.Response:
    """Server-sent events; strings go as they are, everything else as JSON."""
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    text = ": keep-alive\n\n" + "".join(f"id: {number}.0\ndata: {line}\n\n" for number, line in enumerate(lines))
    return httpx2.Response(200, text=text, headers={"content-type": "text/event-stream; charset=utf-8"})
