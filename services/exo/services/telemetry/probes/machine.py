"""What this machine is: the facts that do not change while a node runs."""

import platform
import sys
from pathlib import Path
from typing import Final

import msgspec
import psutil

from exo.services.settings import NodeSettings
from exo.services.telemetry.commands import Ask, ask
from exo.streams.nodes import NodeFacts

_CPU_NAMES: Final = ("model name", "Model", "Hardware", "cpu model")
"""Keys of /proc/cpuinfo: x86, ARM boards, older ARM, MIPS."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the operating system says of itself and of the computer."""

    operating_system: str
    os_version: str = ""
    os_build: str = ""
    machine: str = ""
    chip: str = ""


def read_facts(settings: NodeSettings) -> NodeFacts:
    """Describe the machine and this node on it."""
    machine = read_mac() if sys.platform == "darwin" else read_linux()
    return NodeFacts(
        name=settings.name,
        version=settings.version,
        operating_system=machine.operating_system,
        os_version=machine.os_version,
        os_build=machine.os_build,
        machine=machine.machine,
        chip=machine.chip,
        cores=psutil.cpu_count() or 0,
        memory_total=psutil.virtual_memory().total,
        backends=settings.backends,
        addresses=settings.addresses,
        api_port=settings.api_port,
        worker=settings.worker,
    )


def read_linux(root: Path = Path("/")) -> Machine:
    """Read what the distribution and the firmware say; the build is the kernel's."""
    release = parse_release(_read(root / "etc" / "os-release"))
    board = _read(root / "proc" / "device-tree" / "model").strip("\0\n ")
    return Machine(
        operating_system=release.get("PRETTY_NAME") or f"{platform.system()} {platform.release()}",
        os_version=release.get("VERSION_ID", ""),
        os_build=platform.release(),
        machine=_read(root / "sys" / "class" / "dmi" / "id" / "product_name").strip() or board,
        chip=parse_cpu(_read(root / "proc" / "cpuinfo")) or platform.processor() or platform.machine(),
    )


def read_mac(ask: Ask = ask) -> Machine:
    """Ask macOS."""
    version = ask("sw_vers", "-productVersion").strip()
    return Machine(
        operating_system=f"macOS {version}".strip(),
        os_version=version,
        os_build=ask("sw_vers", "-buildVersion").strip(),
        machine=ask("sysctl", "-n", "hw.model").strip(),
        chip=ask("sysctl", "-n", "machdep.cpu.brand_string").strip() or platform.machine(),
    )


def parse_release(text: str) -> dict[str, str]:
    """Read /etc/os-release: `KEY=value`, with quotes where it has spaces."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def parse_cpu(text: str) -> str:
    """Find the processor's name in /proc/cpuinfo; empty where it has none, as on most ARM servers."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    values = {key.strip(): value.strip() for key, _, value in reversed(list(pairs))}
    return next((values[name] for name in _CPU_NAMES if values.get(name)), "")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
