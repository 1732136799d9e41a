"""What a node says when it starts. Pure text; `exo up` prints it."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

from exo.broker.addresses import list_interface_addresses, list_usable
from exo.ops.paths import Paths
from exo.ops.settings import Settings
from exo.streams.ids import NodeId

SEPARATOR = "=" * 72
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - nothing is bound here
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def exo_version() -> str:
    """Give the version of the installed distribution."""
    return version("exo")


def make_banner(settings: Settings, paths: Paths, *, node_id: NodeId, pid: int, closed: bool) -> list[str]:
    """Give the lines, separator first. `closed` tells whether the cluster has a secret."""
    facts = _make_facts(settings, paths, node_id=node_id, pid=pid)
    return [SEPARATOR, "Starting EXO", *facts, *_make_cluster_facts(settings, closed=closed), SEPARATOR]


def _make_facts(settings: Settings, paths: Paths, *, node_id: NodeId, pid: int) -> Iterator[str]:
    yield f"version {exo_version()}, pid {pid}"
    yield f"node id {node_id}, name {settings.name}"
    yield f"API: {_show_api(settings)}"
    if settings.api and settings.host not in _LOOPBACK and settings.no_auth:
        yield "The API is open to the network, without keys: everybody who reaches this address may use it"
    if not settings.worker:
        yield "No models run on this node (--no-worker)"
    if settings.offline:
        yield "Offline: nothing is fetched from the internet"
    yield f"data: {paths.data}"
    yield f"log: {paths.log_file}"


def _make_cluster_facts(settings: Settings, *, closed: bool) -> Iterator[str]:
    yield f"Discovery namespace: {settings.namespace}"
    if settings.local:
        yield "Loopback only (--local): no other machine can join"
        return
    yield f"Cluster port: {f'{settings.cluster_port} if it is free' if settings.cluster_port else 'any free one'}"
    if settings.bootstrap_peers:
        yield f"Joining through {', '.join(settings.bootstrap_peers)}"
    if not settings.discovery:
        yield "No multicast (--no-discovery): nodes meet through --join"
    if closed:
        yield "The cluster is closed: machines without its secret are refused"
    else:
        yield "The cluster is open: whoever reaches this machine may join. `exo cluster secret` closes it"


def _show_api(settings: Settings) -> str:
    if not settings.api:
        return "off (--no-api)"
    if not settings.port:
        return f"{settings.host}, on any free port"
    network = network_api_url(settings.host, settings.port)
    return f"{api_url(settings.host, settings.port)}{f', for other machines {network}' if network else ''}"


def network_api_url(host: str, port: int) -> str:
    """Give the address under which other machines reach an API that listens everywhere; empty when it does not."""
    addresses = list_usable(list_interface_addresses()) if host in _EVERYWHERE else []
    return api_url(addresses[0], port) if addresses else ""


def api_url(host: str, port: int) -> str:
    """Give the address under which a person on this machine reaches the API."""
    reachable = _EVERYWHERE.get(host, host)
    bracketed = f"[{reachable}]" if ":" in reachable and not reachable.startswith("[") else reachable
    return f"http://{bracketed}:{port}"
