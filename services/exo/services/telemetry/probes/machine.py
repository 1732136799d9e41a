"""What this machine is: the facts that do not change while a node runs."""

import platform
from pathlib import Path

import psutil

from exo.services.settings import NodeSettings
from exo.streams.nodes import NodeFacts


def read_facts(settings: NodeSettings) -> NodeFacts:
    """Describe the machine and this node on it."""
    return NodeFacts(
        name=settings.name,
        version=settings.version,
        operating_system=f"{platform.system()} {platform.release()}",
        chip=_read_chip(),
        cores=psutil.cpu_count() or 0,
        memory_total=psutil.virtual_memory().total,
        backends=settings.backends,
        addresses=settings.addresses,
        api_port=settings.api_port,
        worker=settings.worker,
    )


def _read_chip() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
