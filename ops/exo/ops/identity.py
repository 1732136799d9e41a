"""Who this node is: an id that is drawn once, and the machine that drew it.

Called by `exo.ops.start` under the lock of the data directory, before anything else of it is used.
A data directory that was copied to another machine holds the same id there; two nodes with one id
would speak over each other, so the copy gets an id of its own and says so.
"""

import shutil

import msgspec

from exo.ops.errors import CommandError
from exo.ops.files import write_private
from exo.ops.paths import Paths
from exo.streams.ids import SUBJECT_TOKEN, NodeId, new_node_id


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The id, the machine's fingerprint, and what there is to tell: empty unless the id was changed."""

    node: NodeId
    fingerprint: str = ""
    notice: str = ""


def load_identity(paths: Paths, *, fingerprint: str) -> NodeIdentity:
    """Give this node's identity, drawn and stored at the first call.

    An empty `fingerprint` tells nothing and changes nothing. `CommandError` when the file holds no id.
    """
    stored = _read_node_id(paths)
    if stored is None:
        return _draw(paths, fingerprint)
    drawn_on = paths.machine_file.read_text().strip() if paths.machine_file.exists() else ""
    if not fingerprint or drawn_on == fingerprint:
        return NodeIdentity(node=stored, fingerprint=fingerprint)
    if not drawn_on:
        write_private(paths.machine_file, fingerprint.encode() + b"\n")
        return NodeIdentity(node=stored, fingerprint=fingerprint)
    return _rekey(paths, stored, fingerprint)


def _read_node_id(paths: Paths) -> NodeId | None:
    try:
        text = paths.node_id_file.read_text().strip()
    except FileNotFoundError:
        return None
    if not SUBJECT_TOKEN.match(text):
        raise CommandError(
            f"{paths.node_id_file} does not hold a node id", remedy="delete it: the machine gets a new one"
        )
    return NodeId(text)


def _draw(paths: Paths, fingerprint: str) -> NodeIdentity:
    node = new_node_id()
    # The id comes first: a start that dies in between is then repeated, and never takes the copied id for its own.
    write_private(paths.node_id_file, node.encode() + b"\n")
    if fingerprint:
        write_private(paths.machine_file, fingerprint.encode() + b"\n")
    return NodeIdentity(node=node, fingerprint=fingerprint)


def _rekey(paths: Paths, copied: NodeId, fingerprint: str) -> NodeIdentity:
    """Leave everything that is the original's alone: its id, its keys, its sessions. Models are anybody's."""
    shutil.rmtree(paths.store, ignore_errors=True)
    shutil.rmtree(paths.standby, ignore_errors=True)
    drawn = _draw(paths, fingerprint)
    notice = (
        f"this data directory comes from another machine, where it belongs to node {copied}: "
        f"here the node is now {drawn.node}. Models were kept, the message broker's copied store was dropped"
    )
    return msgspec.structs.replace(drawn, notice=notice)
