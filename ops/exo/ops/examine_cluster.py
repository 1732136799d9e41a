"""Looks at this machine's network and asks its node about the others, for `exo doctor`. Facts only."""

import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from exo.broker.addresses import list_interface_addresses, list_usable
from exo.ops.client import NodeClient, is_loopback
from exo.ops.cluster_report import ClusterAnswer
from exo.ops.cluster_view import ClusterView
from exo.ops.doctor_cluster import ClusterFacts
from exo.ops.errors import CommandError, SettingsError
from exo.ops.files import is_private
from exo.ops.layers import Loaded
from exo.ops.lock import is_held
from exo.ops.node_file import RunningNode, read_node_file
from exo.ops.port_holder import find_port_holder
from exo.ops.secret import find_secret

_FRESH = 10.0
"""Seconds; an older gauge says little about a clock."""
_ELSEWHERE = "192.0.2.1"
"""An address of documentation. Nothing is sent to it: choosing a way there is all that is asked."""


async def examine_cluster(loaded: Loaded) -> ClusterFacts:
    """Look, and ask the node if one runs."""
    settings, paths = loaded.settings, loaded.paths
    closed, problem = _look_at_secret(loaded)
    node = read_node_file(paths)
    known = ClusterFacts(
        # The node that runs may have been told by a flag, which only shows in where it listens.
        local=settings.local or (node is not None and is_local(node)),
        closed=closed,
        secret_problem=problem,
        secret_file=str(paths.secret_file),
        # A file that somebody named may belong to a container's runtime, which decides who reads it.
        secret_is_private=is_private(paths.secret_file),
        network=has_network(),
        firewalls=tuple(find_firewalls()),
        port=settings.cluster_port,
        nats_port=settings.nats_port,
        port_holder="" if is_held(paths.lock_file) else find_port_holder(settings.cluster_port),
    )
    if node is None or not node.api_url:
        return known
    try:
        async with NodeClient(node.api_url) as client:
            answer = await client.get("/v1/cluster", ClusterAnswer)
            view = await client.get("/state", ClusterView)
    except CommandError:
        # `exo.ops.examine` finds out by itself why the node does not answer, and says so.
        return known
    return replace(known, answer=answer, closed=answer.report.closed, offsets=find_offsets(view, now=time.time()))


def is_local(node: RunningNode) -> bool:
    """Whether a running node can be reached from this machine only."""
    return bool(node.cluster_addresses) and all(is_loopback(f"tcp://{one}") for one in node.cluster_addresses)


def _look_at_secret(loaded: Loaded) -> tuple[bool, str]:
    """Tell whether there is a secret, and what is wrong with it."""
    try:
        return find_secret(loaded.settings, loaded.paths).closed, ""
    except SettingsError as error:
        return True, error.message


def find_offsets(view: ClusterView, *, now: float) -> Mapping[str, float]:
    """Give by how many seconds each node's clock is ahead, from when it says that it took its newest gauge."""
    found: dict[str, float] = {}
    for node, readings in view.telemetry.items():
        newest = min(readings.values(), key=lambda reading: reading.age, default=None)
        if newest is not None and newest.taken_at and newest.age < _FRESH:
            record = view.nodes.get(node)
            found[record.facts.name if record else node] = newest.taken_at / 1000 - (now - newest.age)
    return found


def has_network() -> bool:
    """Whether there is a way to anything but this machine, by IPv4 or IPv6."""
    for family, address in ((socket.AF_INET, _ELSEWHERE), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 9))
        except OSError:
            continue
        return True
    # Without a router there may still be a cable, with addresses that reach from end to end.
    return bool(list_usable(list_interface_addresses()))


def find_firewalls(root: Path = Path("/"), *, platform: str = sys.platform) -> list[str]:
    """Give the firewalls that are switched on, as far as a user can see."""
    if platform == "darwin":
        return ["macos"]
    found: list[str] = []
    if _is_ufw_on(root / "etc" / "ufw" / "ufw.conf"):
        found.append("ufw")
    if (root / "run" / "firewalld").exists() or (root / "run" / "firewalld.pid").exists():
        found.append("firewalld")
    return found


def _is_ufw_on(file: Path) -> bool:
    try:
        return "enabled=yes" in file.read_text().lower().replace(" ", "")
    except OSError:
        return False
