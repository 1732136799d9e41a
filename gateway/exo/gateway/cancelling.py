"""Cancels requests, and does not forget to when there is no hub that could hear of it.

A request of an instance on this node is dropped here at once while there is no hub; the command
follows when there is one, since only the log ends a request for everybody.
"""

import asyncio
from time import monotonic
from typing import Final

import structlog

from exo.broker.errors import BrokerError
from exo.gateway.commands import Commander, now_ms
from exo.gateway.errors import GatewayError
from exo.gateway.hub import Spawn
from exo.gateway.outages import Outages
from exo.gateway.ports import LocalTasks, StateSource
from exo.streams.codes import Code
from exo.streams.commands import CancelTask
from exo.streams.ids import TaskId, new_command_id
from exo.streams.state import State

log = structlog.get_logger(__name__)

PATIENCE: Final = 60.0
"""Seconds that a cancellation waits for a hub, and is repeated when a session forgot it."""


class Canceller:
    """All cancellations that this gateway asks for."""

    def __init__(
        self,
        commander: Commander,
        states: StateSource,
        *,
        outages: Outages,
        local: LocalTasks,
        spawn: Spawn,
        timeout: float,
    ) -> None:
        self._commander = commander
        self._outages = outages
        self._local = local
        self._spawn = spawn
        self._timeout = timeout
        self._asked: dict[TaskId, tuple[float, str]] = {}
        self._stop_listening = states.on_session(self._on_session)

    def cancel_soon(self, task: TaskId, *, reason: str) -> None:
        """Cancel without waiting, for callers that are themselves being cancelled."""
        self._spawn(self.cancel(task, reason=reason))

    async def cancel(self, task: TaskId, *, reason: str) -> None:
        """See to it that a task is dropped; never raises, since nobody waits for the outcome."""
        try:
            await self._cancel(task, reason)
        except (GatewayError, BrokerError) as error:
            log.debug("a cancellation was not needed or not heard", task=task, error=str(error))

    async def ask(self, task: TaskId, *, reason: str) -> None:
        """Cancel for a client that waits: raises what the master refuses, and that it could not be asked in time.

        It is asked all the same as soon as it can be.
        """
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._spawn(self._tell(heard, task, reason))
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.shield(heard)
        except TimeoutError as error:
            unheard = self._outages.describe()
            if self._outages.connected.is_set():
                unheard = GatewayError(Code.MASTER_UNAVAILABLE, "No master has answered yet.")
            message = f"{unheard.message} The request will be cancelled as soon as one can be asked."
            raise GatewayError(unheard.code, message) from error

    async def _tell(self, heard: "asyncio.Future[None]", task: TaskId, reason: str) -> None:
        try:
            await self._cancel(task, reason)
        except (GatewayError, BrokerError) as error:
            if not heard.done():
                heard.set_exception(error)
                # Whoever waited may have gone: nobody is to be warned of that.
                heard.exception()
        else:
            if not heard.done():
                heard.set_result(None)

    async def _cancel(self, task: TaskId, reason: str) -> None:
        now = monotonic()
        self._asked = {key: value for key, value in self._asked.items() if now - value[0] < PATIENCE}
        self._asked[task] = (now, reason)
        if not self._outages.connected.is_set():
            await self._local.cancel_task(task, reason=reason)
        command = CancelTask(
            command_id=new_command_id(), issued_at=now_ms(), ttl=int(PATIENCE * 1000), task=task, reason=reason
        )
        await self._commander.execute(command, patience=PATIENCE)

    def _on_session(self, _old: State, new: State) -> None:
        """Cancel again what a new session takes for running: the decision was lost with the hub."""
        now = monotonic()
        for task, (at, reason) in list(self._asked.items()):
            if task in new.tasks and now - at < PATIENCE:
                self.cancel_soon(task, reason=reason)

    def stop(self) -> None:
        """Listen no longer."""
        self._stop_listening()
