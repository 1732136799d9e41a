"""How short of memory the operating system says it is.

Linux tells how long programs wait for memory (`/proc/pressure/memory`), macOS names a level.
"""

import re
import sys
from pathlib import Path
from typing import Final

from exo.services.telemetry.commands import Ask, ask
from exo.streams.telemetry import Pressure

_STALLED: Final = re.compile(r"^(some|full) avg10=(\d+(?:\.\d+)?)", re.MULTILINE)
_WARNING_SHARE: Final = 10.0
"""Percent of the last ten seconds in which some program waited for memory."""
_CRITICAL_SHARE: Final = 10.0
"""Percent in which all of them did."""
_LEVELS: Final[dict[str, Pressure]] = {"1": "normal", "2": "warning", "4": "critical"}


def read_pressure(*, platform: str = sys.platform, proc: Path = Path("/proc"), ask: Ask = ask) -> Pressure:
    """Ask the system that this is."""
    if platform == "darwin":
        return _LEVELS.get(ask("sysctl", "-n", "kern.memorystatus_vm_pressure_level").strip(), "unknown")
    try:
        return parse_stalls((proc / "pressure" / "memory").read_text())
    except OSError:
        # A kernel without PSI, or a container that hides it.
        return "unknown"


def parse_stalls(text: str) -> Pressure:
    """Judge what Linux says of the last ten seconds."""
    shares = {kind: float(share) for kind, share in _STALLED.findall(text)}
    if "some" not in shares:
        return "unknown"
    if shares.get("full", 0) >= _CRITICAL_SHARE:
        return "critical"
    return "warning" if shares["some"] >= _WARNING_SHARE else "normal"
