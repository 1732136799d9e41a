"""Small responses that the management routes share."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, cast

from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from exo.gateway.sse import HEADERS, KEEP_ALIVE
from exo.streams.codec import encode

JSON = "application/json"
ABORT: Final = "exo.abort"
"""Where `exo.gateway.serve` puts the function that drops a connection at once."""


def json_response(value: Any, *, status: int = 200) -> ASGIResponse:
    """Encode a value; msgspec types keep the spelling they declare."""
    return raw_json(encode(value), status=status)


def raw_json(body: bytes, *, status: int = 200) -> ASGIResponse:
    """Send JSON that is encoded already."""
    return ASGIResponse(body=body, media_type=JSON, status_code=status)


class EventStreams:
    """Opens event streams and ends them all when the server stops, since most of them would never end."""

    def __init__(self, *, keep_alive: float, stall_timeout: float) -> None:
        self.keep_alive = keep_alive
        self.stall_timeout = stall_timeout
        self.stopping = asyncio.Event()

    def open(self, source: AsyncGenerator[bytes, None]) -> "EventStreamResponse":
        """Give the response that writes what a generator of encoded events yields."""
        return EventStreamResponse(source, self)


class EventStreamResponse:
    """Server-sent events from a generator, with a comment whenever it is silent for long.

    The generator is closed when the client leaves or stops reading, when the server stops and when it
    ends by itself.
    """

    def __init__(self, source: AsyncGenerator[bytes, None], streams: EventStreams) -> None:
        self._source = source
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write until the source ends, the client is gone or the server stops."""
        ends = {asyncio.ensure_future(_await_disconnect(receive)), asyncio.ensure_future(self._streams.stopping.wait())}
        following = asyncio.ensure_future(anext(self._source, None))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._send(send, KEEP_ALIVE)
            while not any(end.done() for end in ends):
                await asyncio.wait(
                    {*ends, following}, timeout=self._streams.keep_alive, return_when=asyncio.FIRST_COMPLETED
                )
                if not following.done():
                    await self._send(send, KEEP_ALIVE)
                    continue
                body = following.result()
                if body is None:
                    break
                await self._send(send, body)
                following = asyncio.ensure_future(anext(self._source, None))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            drop_connection(scope)
        finally:
            waiting: set[asyncio.Future[Any]] = {*ends, following}
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await self._source.aclose()

    async def _send(self, send: Send, body: bytes) -> None:
        async with asyncio.timeout(self._streams.stall_timeout):
            await send({"type": "http.response.body", "body": body, "more_body": True})


def find_abort(scope: Scope) -> Callable[[], None] | None:
    """Give the function that drops the connection of a request; only `exo.gateway.serve` offers one."""
    return cast("dict[str, Any]", scope).get(ABORT)


def drop_connection(scope: Scope) -> None:
    """Drop the connection of a client that takes nothing, with all that is buffered for it."""
    abort = find_abort(scope)
    if abort is not None:
        abort()


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
