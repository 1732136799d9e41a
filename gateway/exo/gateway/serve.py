"""Serves an app over HTTP inside the caller's event loop. Called by `exo.ops.up` and by tests.

Signals stay the caller's: uvicorn's own handlers are left out.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import structlog
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from exo.gateway.edge import Edge
from exo.gateway.responses import ABORT

log = structlog.get_logger(__name__)

BACKLOG = 2048
KEEP_ALIVE = 75
"""Seconds an idle connection is kept; longer than what proxies and SDK pools keep it for."""
GRACE = 3
"""Seconds that running responses get when the server stops."""


class AddressInUseError(Exception):
    """Raised when the address cannot be listened on; `flag` is the setting that has to change."""

    def __init__(self, host: str, port: int, *, reason: str, flag: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {reason}; choose another {flag} with --{flag}")
        self.host = host
        self.port = port


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which also lets a response drop its connection without sending what is buffered."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]


class _Server(Server):
    """uvicorn's server without its signal handlers, which says when it accepts connections."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 lets the system pick one. Raises `AddressInUseError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "that is no host's name"
        raise AddressInUseError(host, port, reason=reason, flag="host") from error
    family, _, _, _, address = found[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        flag = "host" if error.errno == errno.EADDRNOTAVAIL else "port"
        raise AddressInUseError(host, port, reason=error.strerror or str(error), flag=flag) from error
    listener.setblocking(False)
    return listener


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
        await serving
