"""Empties a node: it gets nothing new, and what it has ends. Used by `exo drain` and `exo down`."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

import msgspec

from exo.ops.api_path import fill_path
from exo.ops.client import NodeClient
from exo.ops.cluster_view import ClusterView, can_serve_without, count_tasks
from exo.ops.terminal import show_count
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


async def leaves_none(client: NodeClient, drained: Drained) -> bool:
    """Whether no other node takes new requests for models."""
    return not can_serve_without(await client.get("/state", ClusterView), drained.node_id)


async def wait_until_empty(client: NodeClient, drained: Drained, *, show: Show, grace: float | None = None) -> int:
    """Wait until a draining node works on nothing, or is not draining any more; gives the requests left.

    `grace` in seconds bounds the wait, None does not. `show` is told each change.
    """
    until = monotonic() + grace if grace is not None else float("inf")
    left, is_draining = drained.tasks_left, drained.draining
    while left and is_draining and monotonic() < until:
        show(f"{drained.name}: {show_count(left, 'request')} left")
        await asyncio.sleep(min(_LOOK_AGAIN, max(until - monotonic(), 0)))
        view = await client.get("/state", ClusterView)
        left = count_tasks(view, drained.node_id)
        record = view.nodes.get(drained.node_id)
        is_draining = record is not None and record.online and record.draining
    return left


def _path(node: str) -> str:
    return fill_path("/v1/nodes/{}/drain", node, what="name or id of a node")
