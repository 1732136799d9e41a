"""Asks the master and waits for its answer: every change that a client wants goes through here.

A command that waits for its answer is sent again whenever the broker comes back and at each new
session: it may have been lost with the hub. The master decides it once, by its id.
"""

import asyncio
from contextlib import suppress
from time import monotonic, time_ns
from typing import Final

import structlog
from msgspec.structs import replace

from exo.broker.bus import Bus
from exo.broker.errors import BusUnavailableError
from exo.gateway.errors import GatewayError
from exo.gateway.outages import Outages
from exo.gateway.ports import StateSource
from exo.streams.codec import encode
from exo.streams.codes import Code
from exo.streams.commands import Command, subject_of_command
from exo.streams.envelope import headers_of_fact
from exo.streams.ids import CommandId
from exo.streams.state import Receipt

log = structlog.get_logger(__name__)

MILLISECONDS: Final = 1_000_000
SEND_TIMEOUT: Final = 2.0
"""Seconds that the broker gets to store a message; a full disk makes it say nothing at all."""
_RETRY: Final = 0.5
_LOOK: Final = 1.0


def now_ms() -> int:
    """Unix time in ms, for the dates in commands."""
    return time_ns() // MILLISECONDS


class Commander:
    """Publishes commands. The answer is an event, read from this node's own State."""

    def __init__(self, bus: Bus, states: StateSource, *, outages: Outages, timeout: float) -> None:
        self._bus = bus
        self._states = states
        self._outages = outages
        self._timeout = timeout
        self._waiting: dict[CommandId, tuple[float, Command]] = {}
        """With the moment on the monotonic clock at which each was issued."""
        self._unsent: set[CommandId] = set()
        self._wanted = asyncio.Event()
        outages.on_return(self._send_all_again)

    async def execute(self, command: Command, *, patience: float = 0) -> Receipt:
        """Publish a command and give the receipt of its acceptance; `patience` in seconds, 0 for the usual.

        A rejection is raised with the master's code and reason; so is a broker that does not come back
        in time, and a master that does not answer.
        """
        issued = monotonic()
        deadline = issued + (patience or self._timeout)
        key = command.command_id
        self._waiting[key] = issued, command
        try:
            if not await self._send(key):
                self._wanted.set()
            receipt = await self._await_answer(key, deadline)
        except TimeoutError as error:
            raise self._describe_silence(key, patience or self._timeout) from error
        finally:
            del self._waiting[key]
            self._unsent.discard(key)
        if receipt.outcome == "rejected":
            raise GatewayError(receipt.code, receipt.reason)
        return receipt

    async def _await_answer(self, key: CommandId, deadline: float) -> Receipt:
        """Wait for the master, and look now and then whether the broker can store anything at all."""
        while True:
            try:
                return await self._states.answer(key, timeout=min(max(deadline - monotonic(), 0), _LOOK))
            except TimeoutError:
                if (full := self._outages.find_full()) is not None:
                    raise full from None
                if monotonic() >= deadline:
                    raise

    async def run(self) -> None:
        """Send what waits for its answer and may not have arrived, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY if self._unsent else None):
                    await self._wanted.wait()
            self._wanted.clear()
            for key in list(self._unsent):
                if not await self._send(key):
                    break

    async def _send(self, key: CommandId) -> bool:
        """Publish a command unless it is too late; without a broker it is noted for `run`, and False given.

        The queue of a new session counts its time to live anew, so that only what is left of it is sent.
        """
        self._unsent.discard(key)
        if key not in self._waiting:
            return True
        issued, command = self._waiting[key]
        left = command.ttl - int((monotonic() - issued) * 1000)
        if left <= 0:
            return True
        command = replace(command, ttl=left)
        try:
            # Sent twice it counts once, by its message id.
            async with asyncio.timeout(SEND_TIMEOUT):
                await self._bus.append(subject_of_command(command), encode(command), headers=headers_of_fact(key))
        except (BusUnavailableError, TimeoutError):
            if key in self._waiting:
                self._unsent.add(key)
            return False
        return True

    def _send_all_again(self) -> None:
        self._unsent.update(self._waiting)
        self._wanted.set()

    def _describe_silence(self, key: CommandId, waited: float) -> GatewayError:
        if not self._outages.connected.is_set():
            return self._outages.describe()
        return GatewayError(
            Code.MASTER_UNAVAILABLE,
            f"No master answered within {waited:g} s. `GET /v1/commands/{key}` tells whether the command was decided "
            "later.",
        )
