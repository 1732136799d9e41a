"""Power and temperature of a Linux machine, where the kernel lets us read them.

Power is the growth of the energy counters below `/sys/class/powercap` (RAPL); most systems let only
root read those. Temperature is the processor's own sensor.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec
import psutil

from exo.streams.telemetry import PowerGauge

_SENSORS: Final = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal", "acpitz")
"""Of processors, the best first; psutil names them after the kernel's drivers."""


class Sensor(Protocol):
    """One of psutil's."""

    @property
    def current(self) -> float: ...


class Energy(msgspec.Struct, frozen=True):
    """A counter of microjoules, which starts again at 0 after `limit`."""

    counted: int
    limit: int


class PowerProbe:
    """Measures power from one reading to the next."""

    def __init__(self, *, sys: Path = Path("/sys"), clock: Callable[[], float] = time.monotonic) -> None:
        self._root = sys / "class" / "powercap"
        self._clock = clock
        self._before: tuple[dict[str, Energy], float] = {}, 0

    def read(self) -> PowerGauge | None:
        """Give what can be read; None when that is nothing at all."""
        package, temperature = self._read_package(), read_temperature(_list_sensors())
        counted = bool(self._before[0])
        return PowerGauge(package=package, temperature=temperature) if counted or temperature is not None else None

    def _read_package(self) -> float | None:
        now, energies = self._clock(), read_energies(self._root)
        before, then = self._before
        self._before = energies, now
        return compute_power(before, energies, seconds=now - then)


def read_energies(root: Path) -> dict[str, Energy]:
    """Give the counter of each processor package; cores and memory below it are parts of it."""
    found: dict[str, Energy] = {}
    for zone in sorted(root.glob("intel-rapl:*")):
        if zone.name.count(":") != 1:
            continue
        try:
            counted = int((zone / "energy_uj").read_text())
            limit = int((zone / "max_energy_range_uj").read_text())
        except (OSError, ValueError):
            continue
        found[zone.name] = Energy(counted, limit)
    return found


def compute_power(before: Mapping[str, Energy], after: Mapping[str, Energy], *, seconds: float) -> float | None:
    """Give watts over `seconds`, or None when there is nothing to compare."""
    common = before.keys() & after.keys()
    if not common or seconds <= 0:
        return None
    grown = sum((after[zone].counted - before[zone].counted) % max(after[zone].limit, 1) for zone in common)
    return grown / 1e6 / seconds


def read_temperature(sensors: Mapping[str, Iterable[Sensor]]) -> float | None:
    """Give the hottest reading of the best sensor there is; 0 and less are sensors without a probe."""
    for name in _SENSORS:
        readings = [sensor.current for sensor in sensors.get(name, ()) if sensor.current > 0]
        if readings:
            return max(readings)
    return None


def _list_sensors() -> Mapping[str, Iterable[Sensor]]:
    # psutil has the function on Linux and FreeBSD only.
    read = getattr(psutil, "sensors_temperatures", None)
    return read() if read is not None else {}
