"""Empties a node: it gets nothing new, and what it has ends. Used by `exo drain` and `exo down`."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final
from urllib.parse import quote

import msgspec

from exo.ops.client import NodeClient
from exo.ops.cluster_view import ClusterView
from exo.streams.ids import NodeId

_LOOK_AGAIN: Final = 0.5

Show = Callable[[str], object]


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """What a node answers: `tasks_left` requests are still at work on the node that is drained."""

    node_id: NodeId
    name: str
    draining: bool
    tasks_left: int


async def begin_drain(client: NodeClient, node: str, *, timeout: float = 30) -> Drained:
    """Have a node, by id or name, get nothing new; `timeout` in seconds for its answer."""
    return await client.post(_path(node), {}, Drained, timeout=timeout)


async def undo_drain(client: NodeClient, node: str) -> Drained:
    """Take a node back."""
    return await client.delete(_path(node), Drained)


async def wait_until_empty(client: NodeClient, drained: Drained, *, show: Show, grace: float | None = None) -> int:
    """Wait until a draining node works on nothing, or is not draining any more; gives the requests left.

    `grace` in seconds bounds the wait, None does not. `show` is told each change.
    """
    until = monotonic() + grace if grace is not None else float("inf")
    left, is_draining = drained.tasks_left, drained.draining
    while left and is_draining and monotonic() < until:
        show(f"{drained.name}: {left} request{'s' if left != 1 else ''} left")
        await asyncio.sleep(min(_LOOK_AGAIN, max(until - monotonic(), 0)))
        view = await client.get("/state", ClusterView)
        left = count_tasks(view, drained.node_id)
        record = view.nodes.get(drained.node_id)
        is_draining = record is not None and record.online and record.draining
    return left


def count_tasks(view: ClusterView, node: NodeId) -> int:
    """Count the requests at work on instances that a node takes part in."""
    shared = {key for key, item in view.instances.items() if any(shard.node == node for shard in item.shards)}
    return sum(task.instance in shared for task in view.tasks.values())


def _path(node: str) -> str:
    return f"/v1/nodes/{quote(node, safe='')}/drain"
