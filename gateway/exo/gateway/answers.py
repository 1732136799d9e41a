"""Carries one answer to its client, whole or as a stream, whatever the dialect.

No byte of a response is sent before the first chunk is there, so that every refusal is a real HTTP
status. A client that hangs up makes its request be cancelled, unless it asked for `continue`.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from time import monotonic

from litestar.types import Receive, Scope, Send

from exo.gateway.cancelling import Canceller
from exo.gateway.dialects.dialect import DialectModule, StreamRenderer
from exo.gateway.errors import ClientGoneError, GatewayError
from exo.gateway.hub import RelayHub
from exo.gateway.metrics import Metrics
from exo.gateway.relay import Relay
from exo.gateway.responses import find_abort
from exo.gateway.sse import BEGINNING, HEADERS, KEEP_ALIVE, Position, encode_frames
from exo.streams.chunks import TERMINAL, Chunk, Failed, Rejected
from exo.streams.requests import StoredRequest


class AnswerResponse:
    """The whole answer as an ASGI response: `relay` is open, `stored` says how to render."""

    def __init__(
        self,
        relay: Relay,
        stored: StoredRequest,
        *,
        dialect: DialectModule,
        first: Sequence[Chunk],
        courier: "Courier",
        after: Position = BEGINNING,
    ) -> None:
        self._relay = relay
        self._dialect = dialect
        self._stored = stored
        self._first = first
        self._courier = courier
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write frames until the terminal chunk, then end the response in good order."""
        relay = self._relay
        relay.cut = find_abort(scope)
        stored = self._stored
        renderer = self._dialect.render_stream(stored.task, stored.request.model, stored.resume)
        async with self._courier.watch(relay, receive):
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._write(renderer, send)

    async def _write(self, renderer: StreamRenderer, send: Send) -> None:
        relay, chunks = self._relay, self._first
        while True:
            if relay.gone:
                return
            body = b"".join([encode_frames(chunk.index, renderer.frames(chunk), after=self._after) for chunk in chunks])
            ended = bool(chunks) and isinstance(chunks[-1], TERMINAL)
            if body or ended or monotonic() - relay.last_sent >= self._courier.keep_alive:
                relay.last_sent = relay.blocked_since = monotonic()
                await send({"type": "http.response.body", "body": body or KEEP_ALIVE, "more_body": not ended})
                relay.blocked_since = 0.0
            if ended:
                self._courier.count(relay, chunks[-1])
                return
            await relay.wait()
            chunks = relay.take()


class Courier:
    """Brings answers home; one per gateway."""

    def __init__(self, canceller: Canceller, hub: RelayHub, *, metrics: Metrics, keep_alive: float) -> None:
        self._canceller = canceller
        self._hub = hub
        self._metrics = metrics
        self.keep_alive = keep_alive

    async def await_first(self, relay: Relay, receive: Receive) -> list[Chunk]:
        """Wait for the first chunks; raises the runner's refusal. Closes the relay if anything goes wrong."""
        async with self.watch(relay, receive, keep_open=True):
            while not (chunks := relay.take()):
                if relay.gone:
                    raise ClientGoneError
                await relay.wait()
        refusal = chunks[0] if isinstance(chunks[0], Rejected | Failed) else None
        if refusal is not None:
            self._hub.close(relay)
            raise GatewayError(refusal.code, refusal.message)
        self._note_first(relay, chunks[0])
        return chunks

    async def collect(self, relay: Relay, receive: Receive) -> list[Chunk]:
        """Wait for the whole answer; raises what it failed with."""
        chunks: list[Chunk] = []
        async with self.watch(relay, receive):
            while not (chunks and isinstance(chunks[-1], TERMINAL)):
                if relay.gone:
                    raise ClientGoneError
                await relay.wait()
                taken = relay.take()
                if taken and not chunks:
                    self._note_first(relay, taken[0])
                chunks += taken
        last = chunks[-1]
        self.count(relay, last)
        if isinstance(last, Failed | Rejected):
            raise GatewayError(last.code, last.message)
        return chunks

    def _note_first(self, relay: Relay, first: Chunk) -> None:
        if not relay.resumed and not isinstance(first, Failed | Rejected):
            self._metrics.first_chunk.observe(monotonic() - relay.opened_at)

    def count(self, relay: Relay, last: Chunk) -> None:
        """Count the tokens of an answer that has ended; a resumed one was counted where it was asked for."""
        if not relay.resumed:
            self._metrics.count_answer(last)

    @asynccontextmanager
    async def watch(self, relay: Relay, receive: Receive, *, keep_open: bool = False) -> AsyncGenerator[None]:
        """Watch the client while the body runs; afterwards nothing of the relay is left behind.

        Whatever ends the body early - the client, an error, the server's shutdown - closes the relay
        and, if the relay says so, cancels the request. With `keep_open` a body that ends well leaves it open.
        """
        relay.unread_since = None
        watcher = asyncio.ensure_future(_await_disconnect(relay, receive))
        completed = False
        try:
            yield
            completed = not relay.gone
        finally:
            watcher.cancel()
            relay.unread_since = monotonic()
            if not (completed and keep_open):
                self._hub.close(relay)
            if not completed and not relay.ended and relay.cancels:
                self._canceller.cancel_soon(relay.task, reason="the client hung up")


async def _await_disconnect(relay: Relay, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    relay.hang_up()
