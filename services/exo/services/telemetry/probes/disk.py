"""Room where the models are kept."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from exo.streams.telemetry import DiskGauge


def read_disk(directory: Path) -> DiskGauge:
    """Measure the file system of a directory, or of its nearest parent that exists."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    usage = shutil.disk_usage(existing)
    return DiskGauge(total=usage.total, available=usage.free, directory=str(directory))


def name_disks(directories: Sequence[Path]) -> dict[str, Path]:
    """Give each directory the name of its gauge: `disk` where new models go, then `disk-2` and so on."""
    return {"disk" if number == 1 else f"disk-{number}": path for number, path in enumerate(directories, start=1)}
