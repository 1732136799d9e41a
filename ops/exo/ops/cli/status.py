"""`exo ps` and `exo status`: what runs, where, and how it is doing."""

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from exo.ops.cli.options import DataDir, Json, Url, ask_node
from exo.ops.cluster_view import (
    INSTANCE_COLUMNS,
    NODE_COLUMNS,
    REMOVED_COLUMNS,
    ClusterView,
    list_instances,
    list_nodes,
    list_removed,
    summarize,
)
from exo.ops.terminal import print_table, say, tell
from exo.streams.telemetry import Sample

if TYPE_CHECKING:
    from exo.ops.client import NodeClient

Gauges = dict[str, dict[str, Sample]]


def ps(url: Url = None, data_dir: DataDir = None) -> None:
    """List the placed models: their status, requests at work, age and nodes."""
    view, _ = ask_node(url, data_dir, _read)
    print_table(INSTANCE_COLUMNS, list_instances(view, now=time.time()))
    if not view.instances:
        tell("No model is placed; `exo models list` shows what there is, `exo place MODEL` starts one.")


def status(url: Url = None, data_dir: DataDir = None, *, json: Json = False) -> None:
    """Show nodes, instances, requests in flight, tokens per second, and what was removed and why."""
    view, gauges = ask_node(url, data_dir, _read)
    if json:
        say(_encode(view, gauges))
        return
    now = time.time()
    for line in summarize(view, gauges, now=now):
        tell(line)
    tell("")
    print_table(NODE_COLUMNS, list_nodes(view, gauges, now=now))
    for header, rows in (
        (INSTANCE_COLUMNS, list_instances(view, now=now)),
        (REMOVED_COLUMNS, list_removed(view, now=now)),
    ):
        if rows:
            say()
            print_table(header, rows)


async def _read(client: "NodeClient") -> tuple[ClusterView, Gauges]:
    return await asyncio.gather(client.get("/state", ClusterView), client.get("/state/telemetry", Gauges))


def _encode(view: ClusterView, gauges: Gauges) -> str:
    content = {**msgspec.to_builtins(view), "telemetry": msgspec.to_builtins(gauges)}
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
