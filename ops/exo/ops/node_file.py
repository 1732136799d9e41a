"""How commands find the node that runs on this machine, and who this machine is.

`exo up` writes `node.json` once it serves and removes it when it stops; a node that was killed
leaves one behind, which the lock tells from a living one.
"""

import os
from pathlib import Path

import msgspec

from exo.ops.errors import CommandError, NoNodeError
from exo.ops.lock import is_held
from exo.ops.paths import Paths
from exo.streams.ids import SUBJECT_TOKEN, NodeId, new_node_id


class RunningNode(msgspec.Struct, frozen=True, kw_only=True):
    """The node that runs: its process, and where its API answers; `api_url` is empty with `--no-api`.

    Where its message broker answers stands beside the broker's store (`exo.broker.context`).
    """

    pid: int
    node_id: NodeId
    name: str
    version: str
    api_url: str
    started_at: float = 0
    """Unix time in seconds."""


def write_node_file(file: Path, node: RunningNode) -> None:
    """Say that the node serves."""
    _write_whole(file, msgspec.json.encode(node))


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


def load_node_id(file: Path) -> NodeId:
    """Give this machine's id, drawn and stored at the first call."""
    try:
        text = file.read_text().strip()
    except FileNotFoundError:
        node_id = new_node_id()
        _write_whole(file, node_id.encode() + b"\n")
        return node_id
    if not SUBJECT_TOKEN.match(text):
        raise CommandError(f"{file} does not hold a node id", remedy="delete it: the machine gets a new one")
    return NodeId(text)


def _write_whole(file: Path, content: bytes) -> None:
    """Replace a file at once, so that no reader ever sees half of it; owner only."""
    part = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(file)
