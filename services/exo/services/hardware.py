"""One look at this machine's hardware, for `exo doctor` when no node runs here."""

import asyncio
import sys

from exo.services.clock import SystemClock
from exo.services.links.local_findings import find_port_findings
from exo.services.links.thunderbolt import read_thunderbolt
from exo.services.telemetry.apart import run_apart
from exo.services.telemetry.board import FindingBoard
from exo.services.telemetry.macmon import Macmon
from exo.streams.findings import NodeFinding


async def find_hardware_faults(*, platform: str = sys.platform, macmon: str = "") -> tuple[NodeFinding, ...]:
    """Give what is wrong; takes a few seconds on a Mac and finds nothing elsewhere."""
    if platform != "darwin":
        return ()
    thunderbolt, missing = await asyncio.gather(run_apart(read_thunderbolt), _check_macmon(macmon))
    return *missing, *find_port_findings(thunderbolt)


async def _check_macmon(binary: str) -> tuple[NodeFinding, ...]:
    """Let macmon go through its preflight."""
    board = FindingBoard()
    macmon = Macmon(clock=SystemClock(), board=board, binary=binary)
    running = asyncio.create_task(macmon.run())
    try:
        await macmon.settled.wait()
        return board.current()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
