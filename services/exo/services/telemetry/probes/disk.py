"""Room where the models are kept."""

import shutil
from pathlib import Path

from exo.streams.telemetry import DiskGauge


def read_disk(directory: Path) -> DiskGauge:
    """Measure the file system of a directory, or of its nearest parent that exists."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    usage = shutil.disk_usage(existing)
    return DiskGauge(total=usage.total, available=usage.free)
