"""Reading nats-server's monitoring endpoint (loopback HTTP), and looking on at subjects.

Used by `exo nats info|sub|streams`, `exo doctor` and the gateway's broker page. Fields: docs.nats.io,
"Monitoring"; only what exo shows is read.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from exo.broker.bus import Bus, Delivery
from exo.broker.errors import BusUnavailableError

T = TypeVar("T")

TIMEOUT: Final = 5.0
_WAITING: Final = 10_000


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """`/varz`. `mem` in bytes, `cpu` in percent of one core."""

    server_id: str
    server_name: str
    version: str
    start: str
    uptime: str
    mem: int
    cpu: float
    connections: int
    total_connections: int
    subscriptions: int
    slow_consumers: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    max_payload: int


class ClientReport(msgspec.Struct, frozen=True, kw_only=True):
    """One client of `/connz`."""

    cid: int
    name: str = ""
    ip: str = ""
    port: int = 0
    lang: str = ""
    version: str = ""
    uptime: str = ""
    idle: str = ""
    rtt: str = ""
    subscriptions: int = 0
    pending_bytes: int = 0
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0


class ClientsReport(msgspec.Struct, frozen=True, kw_only=True):
    """`/connz`."""

    total: int
    connections: tuple[ClientReport, ...] = ()


class JetStreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the server may take, in bytes."""

    max_memory: int = 0
    max_storage: int = 0
    store_dir: str = ""


class JetStreamReport(msgspec.Struct, frozen=True, kw_only=True):
    """`/jsz`. `memory` and `storage` are in use, in bytes."""

    config: JetStreamLimits = JetStreamLimits()
    memory: int = 0
    storage: int = 0
    streams: int = 0
    consumers: int = 0
    messages: int = 0
    bytes: int = 0


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """`/healthz`: `ok`, or what is wrong (a full disk, a stream that could not be recovered)."""

    status: str
    error: str = ""

    @property
    def healthy(self) -> bool:
        return self.status == "ok"


class Monitor:
    """The monitoring endpoint of one server; `url` is its base."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def server(self) -> ServerReport:
        return await self._read("/varz", ServerReport)

    async def clients(self) -> ClientsReport:
        return await self._read("/connz", ClientsReport)

    async def jetstream(self) -> JetStreamReport:
        return await self._read("/jsz", JetStreamReport)

    async def health(self) -> HealthReport:
        return await self._read("/healthz", HealthReport)

    async def _read(self, path: str, kind: type[T]) -> T:
        try:
            async with asyncio.timeout(TIMEOUT):
                body = await _fetch(self._url, path)
            return msgspec.json.decode(body, type=kind)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, msgspec.DecodeError) as error:
            reason = str(error) or "no answer in time"
            raise BusUnavailableError(f"nats-server's monitoring at {self._url}{path}: {reason}") from error


async def _fetch(url: str, path: str) -> bytes:
    """GET over HTTP/1.0: the answer ends with the connection. An unhealthy server answers 503 with a body."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        await writer.drain()
        return (await reader.read(-1)).partition(b"\r\n\r\n")[2]
    finally:
        writer.close()


async def tap(bus: Bus, subject: str) -> AsyncGenerator[Delivery]:
    """Look on at a subject (wildcards allowed) as long as the caller iterates.

    A reader that falls behind loses the newest, as looking on must not slow the bus down.
    """
    waiting: asyncio.Queue[Delivery] = asyncio.Queue(_WAITING)

    def hear(delivery: Delivery) -> None:
        if not waiting.full():
            waiting.put_nowait(delivery)

    subscription = await bus.subscribe(subject, hear)
    try:
        while True:
            yield await waiting.get()
    finally:
        await subscription.stop()
