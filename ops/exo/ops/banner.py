"""What a node says when it starts. Pure text; `exo up` prints it."""

from collections.abc import Iterator
from importlib.metadata import version

from exo.ops.paths import Paths
from exo.ops.settings import Settings
from exo.streams.ids import NodeId

SEPARATOR = "=" * 72
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def exo_version() -> str:
    """Give the version of the installed distribution."""
    return version("exo")


def make_banner(settings: Settings, paths: Paths, *, node_id: NodeId, pid: int) -> list[str]:
    """Give the lines, separator first."""
    return [SEPARATOR, "Starting EXO", *_make_facts(settings, paths, node_id=node_id, pid=pid), SEPARATOR]


def _make_facts(settings: Settings, paths: Paths, *, node_id: NodeId, pid: int) -> Iterator[str]:
    yield f"version {exo_version()}, pid {pid}"
    yield f"node id {node_id}, name {settings.name}"
    yield f"Discovery namespace: {settings.namespace}"
    yield f"API: {_show_api(settings)}"
    if settings.api and settings.host not in _LOOPBACK:
        yield "The API is open to the network, without keys: everybody who reaches this address may use it"
    if not settings.worker:
        yield "No models run on this node (--no-worker)"
    if settings.offline:
        yield "Offline: nothing is fetched from the internet"
    yield f"data: {paths.data}"
    yield f"log: {paths.log_file}"


def _show_api(settings: Settings) -> str:
    if not settings.api:
        return "off (--no-api)"
    return api_url(settings.host, settings.port) if settings.port else f"{settings.host}, on any free port"


def api_url(host: str, port: int) -> str:
    """Give the address under which a person on this machine reaches the API."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 - nothing is bound here
    bracketed = f"[{reachable}]" if ":" in reachable and not reachable.startswith("[") else reachable
    return f"http://{bracketed}:{port}"
