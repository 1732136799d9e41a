"""A plain streaming client that records what comes over the wire, with nothing an SDK would hide."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import httpx2


@dataclass
class Stream:
    """What one streamed answer gave: `ended` is `done`, `error` or, when the connection broke, `broken`."""

    status: int = 0
    text: str = ""
    ids: list[str] = field(default_factory=list)
    frames: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    finishes: list[str] = field(default_factory=list)
    done: int = 0
    body: Any = None
    broken: bool = False
    started: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first text, or by the end when there is none."""

    def endings(self) -> int:
        """Count the ends that a client saw: a well-behaved stream has exactly one."""
        return len(self.errors) + len(self.finishes)

    def take(self, line: str) -> None:
        if line.startswith("id: "):
            self.ids.append(line[4:])
        if not line.startswith("data: "):
            return
        if line == "data: [DONE]":
            self.done += 1
            return
        frame = json.loads(line[6:])
        self.frames.append(frame)
        if "error" in frame:
            self.errors.append(frame["error"])
            return
        for choice in frame["choices"]:
            self.text += choice["delta"].get("content") or ""
            if self.text:
                self.started.set()
            if choice["finish_reason"]:
                self.finishes.append(choice["finish_reason"])


def body_of(prompt: str, *, model: str = "exo/scripted", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": prompt}], "stream": True, **more}


async def stream_chat(
    client: httpx2.AsyncClient,
    url: str,
    body: dict[str, Any],
    *,
    stop_after: int | None = None,
    headers: dict[str, str] | None = None,
    record: Stream | None = None,
) -> Stream:
    """Stream one answer; `stop_after` frames the client hangs up."""
    request = client.build_request("POST", f"{url}/v1/chat/completions", json=body, headers=headers)
    return await _read(client, request, record or Stream(), stop_after=stop_after)


async def resume_chat(
    client: httpx2.AsyncClient, url: str, request_id: str, *, after: str, record: Stream | None = None
) -> Stream:
    """Go on with a stream after the frame with id `after` (empty: from the beginning)."""
    headers = {"Last-Event-ID": after} if after else None
    request = client.build_request("GET", f"{url}/v1/requests/{request_id}/stream", headers=headers)
    return await _read(client, request, record or Stream())


async def _read(
    client: httpx2.AsyncClient, request: httpx2.Request, record: Stream, *, stop_after: int | None = None
) -> Stream:
    try:
        response = await client.send(request, stream=True)
    except httpx2.TransportError:
        record.broken = True
        return record
    try:
        record.status = response.status_code
        if response.status_code != 200:
            record.body = json.loads(await response.aread())
            return record
        async for line in response.aiter_lines():
            record.take(line)
            if stop_after is not None and len(record.frames) >= stop_after:
                return record
    except httpx2.TransportError:
        record.broken = True
    finally:
        record.started.set()
        await response.aclose()
    return record
