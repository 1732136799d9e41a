"""Which machine this is: a fingerprint that survives restarts and differs between machines.

Read by `exo.ops.identity` at each start. Only a hash leaves this module: the ids that go in are
nobody's business.
"""

import hashlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_MACHINE_ID_FILES = ("etc/machine-id", "var/lib/dbus/machine-id")
_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_CONTAINER_VARIABLES = ("container", "KUBERNETES_SERVICE_HOST")
_PLATFORM_UUID = re.compile(r'"IOPlatformUUID" = "([0-9A-Fa-f-]+)"')
_NO_ADDRESS = "00:00:00:00:00:00"
_PATIENCE = 5.0


def read_fingerprint(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> str:
    """Give the fingerprint as 32 hex digits, empty when nothing tells this machine from another."""
    environment = os.environ if environment is None else environment
    machine = (_read_platform_uuid() if sys.platform == "darwin" else _read_machine_id(root)) or _read_addresses(root)
    parts = [machine]
    if is_container(root, environment):
        # All containers of one image or host share what lies below /etc; their hostname is their own.
        parts.append(socket.gethostname())
    text = "\n".join(part for part in parts if part)
    return hashlib.sha256(f"exo machine\n{text}".encode()).hexdigest()[:32] if text else ""


def is_container(root: Path, environment: Mapping[str, str]) -> bool:
    """Whether this looks like a container of Docker, Podman or Kubernetes."""
    return any((root / name).exists() for name in _CONTAINER_FILES) or any(
        name in environment for name in _CONTAINER_VARIABLES
    )


def parse_platform_uuid(text: str) -> str:
    """Find the machine's UUID in what `ioreg` prints; empty when it is not there."""
    found = _PLATFORM_UUID.search(text)
    return found[1].lower() if found else ""


def _read_platform_uuid() -> str:
    command = ["/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return parse_platform_uuid(done.stdout)


def _read_machine_id(root: Path) -> str:
    for name in _MACHINE_ID_FILES:
        try:
            text = (root / name).read_text().strip()
        except OSError:
            continue
        # systemd writes `uninitialized` into images that are yet to be started.
        if text and text != "uninitialized":
            return text
    return ""


def _read_addresses(root: Path) -> str:
    """Give the hardware addresses of the machine's own cards: those that lead to a device, no bridges, no tunnels."""
    found: set[str] = set()
    for card in (root / "sys/class/net").glob("*"):
        if (card / "device").exists():
            try:
                found.add((card / "address").read_text().strip())
            except OSError:
                continue
    return ",".join(sorted(found - {_NO_ADDRESS, ""}))
