"""A real nats-server for a test: on ports the system picks, in a directory of its own."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from exo.broker.credentials import Credentials
from exo.broker.hub import Hub, HubSettings
from exo.broker.nats_bus import NatsBus
from exo.broker.permissions import HUB

DEADLINE = 20.0
CREDENTIALS = Credentials("test")


@asynccontextmanager
async def running_hub(directory: Path, *, first_sequence: int = 1) -> AsyncGenerator[Hub]:
    """A message server with its admin bus, as the node that is hub runs it."""
    settings = HubSettings(directory=directory / "nats", name="test", first_sequence=first_sequence)
    async with Hub(settings, credentials=CREDENTIALS) as hub:
        yield hub


@asynccontextmanager
async def another_bus(hub: Hub, *, name: str = "another", timeout: float = 5.0) -> AsyncGenerator[NatsBus]:
    """A second connection to the same server, in the same role."""
    settings = hub.connection_settings(HUB, name=name)
    async with NatsBus(settings, timeout=timeout) as bus:
        yield bus


async def wait_until(holds: Callable[[], bool | Awaitable[bool]], *, what: str, timeout: float = DEADLINE) -> None:
    """Wait for something that no event tells; fails with `what` after `timeout` seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        answer = holds()
        if answer if isinstance(answer, bool) else await answer:
            return
        assert loop.time() < deadline, f"not in {timeout:g} s: {what}"
        await asyncio.sleep(0.005)


async def wait_connection(bus: NatsBus, *, connected: bool) -> None:
    """Wait for the loss or the return of a connection."""
    await wait_until(lambda: bus.connected is connected, what=f"connected is {connected}")


def kill(pid: int) -> None:
    """Do what the kernel does when memory runs out."""
    os.kill(pid, signal.SIGKILL)
