"""Watching over a running nats-server for what its exit code does not tell: a hang, a full disk, a lost store.

Run by `hub.py` beside the server's supervisor. Measured with nats-server 2.15: a stopped process keeps
its port open, a full disk stays a refusal until the server is restarted, and a store that was deleted
goes on acknowledging into nothing.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from exo.broker.connect import Connection
from exo.broker.errors import BrokerError
from exo.broker.findings import STORE_DISK_FULL
from exo.broker.monitor import Monitor
from exo.broker.server import NatsServer
from exo.streams.findings import NodeFinding
from exo.streams.layout import MIB

log = structlog.get_logger(__name__)

PERIOD: Final = 1.0
HANG: Final = 3.0
"""Seconds without an answer after which a server that lives counts as hung."""

LITTLE: Final = 32 * MIB
"""Bytes: a disk with less to spare counts as full. What is left is for the requests that run."""

ENOUGH: Final = 2 * LITTLE
"""Bytes of room at which a server that refuses to write is started again."""

FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 30.0
"""Seconds between two such starts; each that did not help doubles them."""

NO_ROOM: Final = "no space left"
"""In nats-server's word for an error that stays after there is room."""


class Health(msgspec.Struct, frozen=True):
    """What was seen of the store. `error` is nats-server's own word; `room` in bytes."""

    error: str
    room: int


def judge_store(health: Health) -> NodeFinding | None:
    """Name what is wrong."""
    if health.room < LITTLE or (NO_ROOM in health.error and health.room < ENOUGH):
        return NodeFinding(
            code=STORE_DISK_FULL,
            message=f"the disk under the message store has {health.room // MIB} MiB left and needs {ENOUGH // MIB}; "
            "new requests are refused",
            remedy="free some space; exo goes on by itself",
        )
    if health.error:
        return NodeFinding(
            code="store_unhealthy",
            message=f"the message server says: {health.error}",
            remedy="if it stays, look into nats-server.log beside the store",
        )
    return None


def should_restart(health: Health, *, since_restart: float, pause: float) -> bool:
    """A server that once met a full disk writes again only after a restart, for which there must be room."""
    return bool(health.error) and health.room >= ENOUGH and since_restart >= pause


class Watch:
    """The watch over one server; `trouble` is what is wrong now. `admin` is a connection to the server."""

    def __init__(self, server: NatsServer, admin: Connection, *, on_store_lost: Callable[[], None]) -> None:
        self.trouble: NodeFinding | None = None
        self._server = server
        self._admin = admin
        self._on_store_lost = on_store_lost
        self._inode = _inode_of(server.settings.store)
        self._restarted_at = float("-inf")
        self._pause = FIRST_PAUSE
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def start(self) -> None:
        self._tasks = tuple(
            asyncio.create_task(_repeat(look, name), name=name)
            for look, name in (
                (self._look_for_hang, "nats-server hang watch"),
                (self._look_at_store, "nats-server store watch"),
            )
        )

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def is_hung(self, patience: float = HANG) -> bool:
        """Tell whether the server lives without answering for that many seconds."""
        server, loop = self._server, asyncio.get_running_loop()
        restarts, deadline = server.restarts, loop.time() + patience
        while server.ready and server.restarts == restarts:
            step = min(PERIOD, patience)
            asked = loop.time()
            with suppress(BrokerError):
                await self._admin.flush(step)
                return False
            if loop.time() - asked > 2 * step:
                # It was we who slept.
                return False
            if loop.time() >= deadline:
                return server.ready and server.restarts == restarts
            # A lost connection fails at once.
            await asyncio.sleep(max(0.0, asked + step / 2 - loop.time()))
        return False

    async def _look_for_hang(self) -> None:
        if await self.is_hung():
            log.error("nats-server hangs; starting it again", pid=self._server.pid)
            await self._server.kill()

    async def _look_at_store(self) -> None:
        store = self._server.settings.store
        if self._server.ready and self._inode != 0 and _inode_of(store) != self._inode:
            self._inode = 0
            log.error("the message store was removed", store=str(store))
            self._on_store_lost()
            return
        health = await self._ask()
        if health is None:
            return
        found = judge_store(health)
        if found is not None and found != self.trouble:
            log.error("message store", code=found.code, reason=found.message)
        self.trouble = found
        now = asyncio.get_running_loop().time()
        if should_restart(health, since_restart=now - self._restarted_at, pause=self._pause):
            # Started again in vain so shortly after: the next one waits for longer.
            in_vain = now - self._restarted_at < 2 * LONGEST_PAUSE
            self._pause = min(2 * self._pause, LONGEST_PAUSE) if in_vain else FIRST_PAUSE
            self._restarted_at = now
            log.warning("there is room; starting nats-server again", room=health.room, error=health.error)
            await self._server.kill()

    async def _ask(self) -> Health | None:
        server = self._server
        try:
            report = await Monitor(server.monitor_url).health()
            room = shutil.disk_usage(server.settings.directory).free
        except (BrokerError, OSError):
            # That is for the other watch.
            return None
        return Health("" if report.healthy else report.error or report.status, room)


def _inode_of(directory: Path) -> int:
    try:
        return directory.stat().st_ino
    except OSError:
        return 0


async def _repeat(look: Callable[[], Awaitable[None]], name: str) -> None:
    while True:
        await asyncio.sleep(PERIOD)
        try:
            await look()
        except Exception:
            log.exception("watch failed", watch=name)
