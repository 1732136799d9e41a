"""A supervised nats-server: found, started, restarted in place when it dies, stopped in lame-duck mode.

Used by `hub.py`. The same store and the same port over all restarts, so that clients just reconnect.
The caller holds the store's lock.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog
from msgspec.structs import replace

from exo.broker.binary import Binary, find_binary
from exo.broker.config import ServerSettings, User
from exo.broker.errors import ServerStartError
from exo.broker.process import Ports, ServerProcess, read_log_tail
from exo.broker.store import stop_leftovers

log = structlog.get_logger(__name__)

HEALTHY_AFTER: Final = 10.0
"""A server that lived this long (seconds) is restarted at once when it dies."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0


def choose_pause(quick_deaths: int) -> float:
    """Give the seconds before the next start, after so many deaths within `HEALTHY_AFTER`."""
    return 0 if quick_deaths == 0 else min(FIRST_PAUSE * 2 ** (quick_deaths - 1), LONGEST_PAUSE)


class NatsServer:
    """One nats-server that is up between `start` and `stop`; also an async context manager.

    `on_ready` is called after the start and after each restart.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        binary: Path | None = None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.restarts = 0
        """How often it died and came back."""
        self._binary_setting = binary
        self._on_ready = on_ready
        self._binary: Binary | None = None
        self._process: ServerProcess | None = None
        self._ports: Ports | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._ready = False

    @property
    def ready(self) -> bool:
        """Whether it runs and has opened its port since."""
        return self._ready

    @property
    def binary(self) -> Binary:
        """The nats-server in use; only after `start`."""
        if self._binary is None:
            raise RuntimeError("the server was not started")
        return self._binary

    @property
    def url(self) -> str:
        """Where clients connect; only after `start`, then the same for good."""
        return self._known_ports.nats[0]

    @property
    def monitor_url(self) -> str:
        """The base of the monitoring endpoint; changes at each restart."""
        return self._known_ports.monitoring[0]

    @property
    def pid(self) -> int:
        """The server's process id; changes at each restart."""
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process.pid

    @property
    def _known_ports(self) -> Ports:
        if self._ports is None:
            raise RuntimeError("the server was not started")
        return self._ports

    async def start(self) -> None:
        """Come up: `ServerNotFoundError` or `ServerStartError` when that fails."""
        self._binary = await find_binary(self._binary_setting)
        await stop_leftovers(self.settings.ports_directory, config_file=self.settings.config_file)
        await self._launch()
        self._supervisor = asyncio.create_task(self._supervise(), name="nats-server supervisor")

    async def _launch(self) -> None:
        self._process = await ServerProcess.spawn(self.binary.path, self.settings)
        try:
            self._ports = await self._process.wait_ready()
        except BaseException:
            await self._process.kill()
            raise
        # From now on this port, whoever picked it: clients reconnect to where they were.
        self.settings = replace(self.settings, port=int(self.url.rpartition(":")[2]))
        self._ready = True
        log.info("nats-server is ready", version=self.binary.version, pid=self.pid, url=self.url)
        self._on_ready()

    async def _supervise(self) -> None:
        loop, quick_deaths = asyncio.get_running_loop(), 0
        while True:
            assert self._process is not None
            started = loop.time()
            code = await self._process.wait()
            self._ready = False
            self.restarts += 1
            log.error("nats-server died", code=code, log_tail=read_log_tail(self.settings, lines=5))
            quick_deaths = 0 if loop.time() - started >= HEALTHY_AFTER else quick_deaths + 1
            # The first death is no pattern yet.
            await self._relaunch(quick_deaths - 1)

    async def _relaunch(self, quick_deaths: int) -> None:
        while True:
            await asyncio.sleep(choose_pause(max(quick_deaths, 0)))
            try:
                # The shim may have died alone and left the server on our store.
                await stop_leftovers(self.settings.ports_directory, config_file=self.settings.config_file)
                await self._launch()
            except (ServerStartError, OSError) as error:
                log.exception("nats-server does not come back", log_tail=getattr(error, "log_tail", []))
                quick_deaths += 1
            else:
                return

    def set_users(self, users: tuple[User, ...]) -> None:
        """Let exactly these in from now on; connections of those who stay are kept."""
        self.settings = replace(self.settings, users=users)
        if self._process is not None and self._ready:
            self._process.reload(self.settings)

    async def kill(self) -> None:
        """End a server that hangs; the supervisor starts it again in place."""
        if self._process is not None and self._ready:
            self._ready = False
            await self._process.kill()

    async def stop(self) -> None:
        """Go down in lame-duck mode; safe to call twice."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervisor
            self._supervisor = None
        self._ready = False
        if self._process is not None:
            await self._process.stop()
            # A shim that has just died passes on no order: its server is still on our store.
            await stop_leftovers(self.settings.ports_directory, config_file=self.settings.config_file)
            log.info("nats-server stopped", pid=self._process.pid)
            self._process = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
