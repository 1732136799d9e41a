"""`exo ps` and `exo status`: what runs, where, and how it is doing."""

import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

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

if TYPE_CHECKING:
    from exo.ops.client import NodeClient
    from exo.ops.cluster_report import ClusterAnswer


Links = Annotated[bool, typer.Option("--links", help="Show what connects the nodes instead.")]


def ps(url: Url = None, data_dir: DataDir = None) -> None:
    """List the placed models: their status, requests at work, age and nodes."""
    view = _read(url, data_dir)
    print_table(INSTANCE_COLUMNS, list_instances(view, now=time.time()))
    if not view.instances:
        tell("No model is placed; `exo models list` shows what there is, `exo place MODEL` starts one.")


def status(url: Url = None, data_dir: DataDir = None, *, links: Links = False, json: Json = False) -> None:
    """Show nodes, instances, requests in flight, tokens per second, what was removed and why, and who was not found."""
    if links:
        _show_links(url, data_dir, json=json)
        return
    view, answer = ask_node(url, data_dir, _read_both)
    if json:
        whole = {**msgspec.to_builtins(view), "cluster": msgspec.to_builtins(answer)}
        say(msgspec.json.format(msgspec.json.encode(whole), indent=2).decode())
        return
    _show_summary(view, answer)
    now = time.time()
    print_table(NODE_COLUMNS, list_nodes(view, now=now, hub=answer.report.hub))
    for header, rows in (
        (INSTANCE_COLUMNS, list_instances(view, now=now)),
        (REMOVED_COLUMNS, list_removed(view, now=now)),
    ):
        if rows:
            say()
            print_table(header, rows)


def _show_links(url: Url, data_dir: DataDir, *, json: bool) -> None:
    from exo.ops.links_view import LINK_COLUMNS, TopologyView, list_findings, list_links

    view = ask_node(url, data_dir, lambda client: client.get("/state/topology", TopologyView))
    if json:
        say(msgspec.json.format(msgspec.json.encode(view), indent=2).decode())
        return
    print_table(LINK_COLUMNS, list_links(view))
    if not view.links:
        tell("No link has been measured: one needs two nodes, and some seconds after they met.")
    for line in list_findings(view):
        tell(line)


def _show_summary(view: ClusterView, answer: "ClusterAnswer") -> None:
    from exo.ops.discovery_lines import describe_discovery, summarize_cluster

    names = {str(node.id): node.facts.name for node in view.nodes.values()}
    lines = [
        summarize_cluster(answer.report, names=names),
        *summarize(view),
        *describe_discovery(answer, now=time.time()),
        "",
    ]
    for line in lines:
        tell(line)


async def _read_both(client: "NodeClient") -> "tuple[ClusterView, ClusterAnswer]":
    from exo.ops.cluster_report import ClusterAnswer

    return await client.get("/state", ClusterView), await client.get("/v1/cluster", ClusterAnswer)


def _read(url: Url, data_dir: DataDir) -> ClusterView:
    return ask_node(url, data_dir, lambda client: client.get("/state", ClusterView))
