"""Asks the master and waits for its answer: every change that a client wants goes through here."""

from time import time_ns
from typing import Final

import structlog

from exo.broker.bus import Bus
from exo.broker.errors import BusUnavailableError
from exo.gateway.errors import GatewayError
from exo.gateway.ports import StateSource
from exo.streams.codec import encode
from exo.streams.codes import Code
from exo.streams.commands import Command, subject_of_command
from exo.streams.envelope import headers_of_fact
from exo.streams.state import Receipt

log = structlog.get_logger(__name__)

MILLISECONDS: Final = 1_000_000


def now_ms() -> int:
    """Unix time in ms, for the dates in commands."""
    return time_ns() // MILLISECONDS


class Commander:
    """Publishes commands. The answer is an event, read from this node's own State."""

    def __init__(self, bus: Bus, states: StateSource, *, timeout: float) -> None:
        self._bus = bus
        self._states = states
        self._timeout = timeout

    async def execute(self, command: Command) -> Receipt:
        """Publish a command and give the receipt of its acceptance.

        A rejection is raised with the master's code and reason; so are the loss of the broker and
        a master that does not answer in time.
        """
        await self.send(command)
        try:
            receipt = await self._states.answer(command.command_id, timeout=self._timeout)
        except TimeoutError as error:
            raise GatewayError(
                Code.MASTER_UNAVAILABLE,
                f"No master answered within {self._timeout:g} s. `GET /v1/commands/{command.command_id}` tells "
                "whether the command was decided later.",
            ) from error
        if receipt.outcome == "rejected":
            raise GatewayError(receipt.code, receipt.reason)
        return receipt

    async def send(self, command: Command) -> None:
        """Publish a command without waiting for the master."""
        try:
            headers = headers_of_fact(command.command_id)
            await self._bus.append(subject_of_command(command), encode(command), headers=headers)
        except BusUnavailableError as error:
            raise GatewayError(
                Code.BROKER_UNAVAILABLE, "The message broker cannot be reached right now; try again shortly."
            ) from error
