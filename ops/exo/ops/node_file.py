"""How commands find the node that runs on this machine.

`exo up` writes `node.json` once it serves and removes it when it stops; a node that was killed
leaves one behind, which the lock tells from a living one.
"""

from pathlib import Path

import msgspec

from exo.ops.errors import CommandError, NoNodeError
from exo.ops.files import write_private
from exo.ops.lock import is_held
from exo.ops.paths import Paths
from exo.streams.ids import NodeId


class RunningNode(msgspec.Struct, frozen=True, kw_only=True):
    """The node that runs: its process, and where its API answers; `api_url` is empty with `--no-api`.

    Where its message broker answers stands beside the broker's store (`exo.broker.context`).
    """

    pid: int
    node_id: NodeId
    name: str
    version: str
    api_url: str
    cluster: str = ""
    """The cluster's name."""
    cluster_port: int = 0
    """Where the cluster port listens."""
    cluster_addresses: tuple[str, ...] = ()
    """Where other machines reach it, as `host:port`."""
    started_at: float = 0
    """Unix time in seconds."""


def write_node_file(file: Path, node: RunningNode) -> None:
    """Say that the node serves."""
    write_private(file, msgspec.json.encode(node))


def remove_node_file(file: Path) -> None:
    """Say that it stopped."""
    file.unlink(missing_ok=True)


def read_node_file(paths: Paths) -> RunningNode | None:
    """Give the node that runs on this data directory, or None when there is none."""
    if not is_held(paths.lock_file):
        return None
    try:
        return msgspec.json.decode(paths.node_file.read_bytes(), type=RunningNode)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise CommandError(f"{paths.node_file}: {error}", remedy="restart the node") from error


def require_node(paths: Paths) -> RunningNode:
    """Give the running node; `NoNodeError` when none runs or it is not ready yet."""
    node = read_node_file(paths)
    if node is not None:
        return node
    if is_held(paths.lock_file):
        raise NoNodeError(f"the node on {paths.data} is still starting", remedy="try again in a moment")
    raise NoNodeError(f"no node runs on {paths.data}", remedy="start one with `exo up`, or name one with --url")
