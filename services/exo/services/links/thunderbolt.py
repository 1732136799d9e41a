"""Watches a Mac's Thunderbolt ports and tells the others when something changes. Does nothing elsewhere."""

import shutil
import sys
from collections.abc import Callable

import structlog

from exo.services.clock import Clock
from exo.services.journal import Journal
from exo.services.links.apple import (
    combine,
    parse_bridge,
    parse_hardware_ports,
    parse_ibv_devices,
    parse_rdma_status,
    parse_thunderbolt,
)
from exo.services.links.local_findings import find_port_findings
from exo.services.telemetry.apart import run_apart
from exo.services.telemetry.board import FindingBoard
from exo.services.telemetry.commands import Ask, ask
from exo.streams.events import ThunderboltObserved
from exo.streams.ids import NodeId
from exo.streams.links import Thunderbolt

log = structlog.get_logger(__name__)

INTERVAL = 10.0
_ON_ITS_WAY = 30.0
"""Seconds in which a fact that is not in State yet is not written again."""

Known = Callable[[], Thunderbolt | None]


class ThunderboltWatch:
    """`known` gives what State holds of this node, so that a restart writes nothing that stands there already."""

    def __init__(self, *, node: NodeId, journal: Journal, known: Known, board: FindingBoard, clock: Clock) -> None:
        self._node = node
        self._journal = journal
        self._known = known
        self._board = board
        self._clock = clock
        self._told: tuple[Thunderbolt, float] | None = None

    async def run(self) -> None:
        """Look again and again; returns at once on anything but a Mac."""
        while sys.platform == "darwin":
            self.take(await run_apart(read_thunderbolt))
            await self._clock.sleep(INTERVAL)

    def take(self, seen: Thunderbolt) -> None:
        """Write a fact when it is news."""
        self._board.note("thunderbolt", *find_port_findings(seen))
        if seen != self._known() and not self._is_on_its_way(seen):
            log.info("thunderbolt has changed", ports=len(seen.ports), bridge=seen.bridge, rdma=seen.rdma)
            self._journal.record(ThunderboltObserved(node=self._node, thunderbolt=seen))
            self._told = seen, self._clock.monotonic()

    def _is_on_its_way(self, seen: Thunderbolt) -> bool:
        if self._told is None:
            return False
        told, at = self._told
        return told == seen and self._clock.monotonic() - at < _ON_ITS_WAY


def read_thunderbolt(ask: Ask = ask, *, has_rdma_ctl: bool | None = None) -> Thunderbolt:
    """Ask macOS for everything at once; takes some two seconds."""
    hardware_ports = parse_hardware_ports(ask("networksetup", "-listallhardwareports"))
    ports = parse_thunderbolt(
        ask("system_profiler", "SPThunderboltDataType", "-json").encode(),
        hardware_ports=hardware_ports,
        rdma_devices=parse_ibv_devices(ask("ibv_devices")),
    )
    can_tell = shutil.which("rdma_ctl") is not None if has_rdma_ctl is None else has_rdma_ctl
    return combine(
        ports,
        bridge_members=parse_bridge(ask("ifconfig", "bridge0")),
        rdma=parse_rdma_status(ask("rdma_ctl", "status") if can_tell else None),
    )
