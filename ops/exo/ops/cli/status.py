"""`exo ps` and `exo status`: what runs, where, and how it is doing."""

import time

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


def ps(url: Url = None, data_dir: DataDir = None) -> None:
    """List the placed models: their status, requests at work, age and nodes."""
    view = _read(url, data_dir)
    print_table(INSTANCE_COLUMNS, list_instances(view, now=time.time()))
    if not view.instances:
        tell("No model is placed; `exo models list` shows what there is, `exo place MODEL` starts one.")


def status(url: Url = None, data_dir: DataDir = None, *, json: Json = False) -> None:
    """Show nodes, instances, requests in flight, tokens per second, and what was removed and why."""
    view = _read(url, data_dir)
    if json:
        say(msgspec.json.format(msgspec.json.encode(view), indent=2).decode())
        return
    now = time.time()
    for line in summarize(view):
        tell(line)
    tell("")
    print_table(NODE_COLUMNS, list_nodes(view, now=now))
    for header, rows in (
        (INSTANCE_COLUMNS, list_instances(view, now=now)),
        (REMOVED_COLUMNS, list_removed(view, now=now)),
    ):
        if rows:
            say()
            print_table(header, rows)


def _read(url: Url, data_dir: DataDir) -> ClusterView:
    return ask_node(url, data_dir, lambda client: client.get("/state", ClusterView))
