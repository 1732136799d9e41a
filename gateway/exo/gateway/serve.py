"""Serves an app over HTTP inside the caller's event loop. Called by `exo.ops.up` and by tests.

Signals stay the caller's: uvicorn's own handlers are left out.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import structlog
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from exo.gateway.edge import Edge
from exo.gateway.listening import BACKLOG
from exo.gateway.responses import ABORT

log = structlog.get_logger(__name__)

KEEP_ALIVE = 75
"""Seconds an idle connection is kept; longer than what proxies and SDK pools keep it for."""
GRACE = 3
"""Seconds that running responses get when the server stops."""
DATE = 1.0
"""Seconds between two changes of the Date header."""


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which also lets a response drop its connection without sending what is buffered."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]


class _Server(Server):
    """uvicorn's server without its signal handlers, which says when it accepts connections.

    It is told to stop by `leaving`, and so need not look ten times a second.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()
        self.leaving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    async def main_loop(self) -> None:
        while not self.leaving.is_set():
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE):
                    await self.leaving.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def serve(app: Edge, listener: socket.socket) -> AsyncGenerator[None]:
    """Serve until left: then no connection is accepted, running responses get `GRACE`, and the app shuts down."""
    config = Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        accepting = asyncio.create_task(server.accepting.wait())
        await asyncio.wait({serving, accepting}, return_when=asyncio.FIRST_COMPLETED)
        accepting.cancel()
        if serving.done():
            # Its start-up failed: the app's lifespan raised, and has logged why.
            await serving
            raise RuntimeError("the HTTP server stopped while it was starting")
        yield
    finally:
        app.begin_shutdown()
        server.should_exit = True
        server.leaving.set()
        await serving
