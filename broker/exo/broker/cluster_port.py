"""The port on which a node listens for other nodes: TLS, the greeting, and no patience for anything else.

Run by `peers.py`. Nobody is trusted before the greeting is done, and whoever has not finished it only
holds one of `MOST_GUESTS` places: a newcomer beyond that takes the place of the one that came first,
so a flood cannot keep members out.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from exo.broker.addresses import plain_host
from exo.broker.certificates import Certificate
from exo.broker.cluster_frames import FrameError, Greeting
from exo.broker.cluster_stream import OversizedError, Stream, wrap_accepted
from exo.broker.errors import PortBusyError
from exo.broker.greeting import Party, RefusedError, greet_as_server
from exo.broker.peer_notes import Notes
from exo.broker.peering import PeersSettings

log = structlog.get_logger(__name__)

MOST_GUESTS: Final = 64
BACKLOG: Final = 128
ACCEPT_PAUSE: Final = 0.2
"""Seconds to wait when there is no descriptor left for a connection."""


class ClusterPort:
    """The listening side. `serve` owns a stream whose other end has proved to be a member."""

    def __init__(
        self,
        settings: PeersSettings,
        *,
        certificate: Certificate,
        party: Callable[[], Party],
        serve: Callable[[Stream, Greeting], Awaitable[None]],
        notes: Notes,
    ) -> None:
        self.port = 0
        self._settings = settings
        self._context = certificate.server_context()
        self._party, self._serve, self._notes = party, serve, notes
        self._guests: dict[asyncio.Task[None], str] = {}
        """Connections before their greeting is done, oldest first."""
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []

    async def start(self) -> None:
        """Listen, or raise `PortBusyError`."""
        self._sockets = open_sockets(self._settings)
        self.port = int(self._sockets[0].getsockname()[1])
        for listening in self._sockets:
            _keep(asyncio.create_task(self._accept(listening), name="cluster port"), self._accepting)
        log.info("cluster port is open", port=self.port, host=self._settings.host or "all interfaces")

    async def stop(self) -> None:
        """Close the port and every connection; safe to call twice."""
        # First of all nobody gets in any more: peers dial again as soon as we let go of them.
        await _cancel(self._accepting)
        for listening in self._sockets:
            listening.close()
        self._sockets = []
        await _cancel(self._connections)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, where = await loop.sock_accept(listening)
            except OSError as error:
                # No descriptors left, or a connection that was gone before we looked.
                self._notes.count("not_accepted", reason=str(error))
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            self._admit_guest(connection, plain_host(str(where[0])))

    def _admit_guest(self, connection: socket.socket, host: str) -> None:
        if len(self._guests) >= MOST_GUESTS:
            oldest = next(iter(self._guests))
            self._notes.count("flooded", address=self._guests.pop(oldest))
            oldest.cancel()
        task = asyncio.create_task(self._receive(connection, host), name=f"cluster guest {host}")
        _keep(task, self._connections)
        self._guests[task] = host
        task.add_done_callback(lambda done: self._guests.pop(done, None))

    async def _receive(self, connection: socket.socket, host: str) -> None:
        """Own one connection until it ends."""
        try:
            stream = await wrap_accepted(connection, self._context)
        except OSError as error:
            self._notes.count(sort_failure(error), address=host, reason=str(error) or type(error).__name__)
            return
        try:
            greeting = await greet_as_server(stream, self._party())
            task = asyncio.current_task()
            assert task is not None
            self._guests.pop(task, None)
            await self._serve(stream, greeting)
        except RefusedError as error:
            self._notes.refuse(error, address=host)
        except (OSError, EOFError, FrameError) as error:
            self._notes.count(sort_failure(error), address=host, reason=str(error) or type(error).__name__)
        except Exception:
            log.exception("serving a peer failed", address=host)
        finally:
            with suppress(asyncio.CancelledError):
                await stream.close()


def _keep(task: asyncio.Task[None], tasks: set[asyncio.Task[None]]) -> None:
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def sort_failure(error: Exception) -> str:
    """Name the counter for what ended a connection before it was of use."""
    match error:
        case OversizedError():
            return "oversized"
        case TimeoutError():
            return "silent"
        case FrameError() | ssl.SSLError():
            return "garbage"
        case _:
            return "dropped"


def open_sockets(settings: PeersSettings) -> list[socket.socket]:
    """Listen on one port of IPv4 and, when all interfaces are meant and it is there, of IPv6."""
    if settings.host:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return [_listen_or_move(settings, family)]
    first = _listen_or_move(settings, socket.AF_INET)
    try:
        return [first, _listen(socket.AF_INET6, "::", int(first.getsockname()[1]))]
    except OSError as error:
        log.info("cluster port is open for IPv4 only", reason=str(error))
        return [first]


def _listen_or_move(settings: PeersSettings, family: socket.AddressFamily) -> socket.socket:
    try:
        return _listen(family, settings.host, settings.port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        if settings.port_is_explicit:
            raise PortBusyError(settings.port, setting="cluster port") from error
        listening = _listen(family, settings.host, 0)
        taken = int(listening.getsockname()[1])
        log.warning("the cluster port is in use; taking another one", port=settings.port, taken=taken)
        return listening


def _listen(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
