"""Small responses that the management routes share."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from exo.gateway.sse import HEADERS, KEEP_ALIVE
from exo.streams.codec import encode

JSON = "application/json"


def json_response(value: Any, *, status: int = 200) -> ASGIResponse:
    """Encode a value; msgspec types keep the spelling they declare."""
    return raw_json(encode(value), status=status)


def raw_json(body: bytes, *, status: int = 200) -> ASGIResponse:
    """Send JSON that is encoded already."""
    return ASGIResponse(body=body, media_type=JSON, status_code=status)


class EventStreamResponse:
    """Server-sent events from a generator, with a comment whenever it is silent for long.

    The generator is closed when the client leaves, when the server stops and when it ends by itself.
    """

    def __init__(self, source: AsyncGenerator[bytes, None], *, keep_alive: float) -> None:
        self._source = source
        self._keep_alive = keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write until the source ends or the client is gone."""
        gone = asyncio.ensure_future(_await_disconnect(receive))
        following = asyncio.ensure_future(anext(self._source, None))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
            while not gone.done():
                done, _ = await asyncio.wait(
                    {gone, following}, timeout=self._keep_alive, return_when=asyncio.FIRST_COMPLETED
                )
                if following not in done:
                    if not done:
                        await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
                    continue
                body = following.result()
                if body is None:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    return
                await send({"type": "http.response.body", "body": body, "more_body": True})
                following = asyncio.ensure_future(anext(self._source, None))
        finally:
            gone.cancel()
            following.cancel()
            await asyncio.gather(gone, following, return_exceptions=True)
            await self._source.aclose()


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
