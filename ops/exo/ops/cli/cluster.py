"""`exo cluster`: who belongs together, and the secret that keeps everybody else out.

A secret is written to its 0600 file; a running node is told to read it again and never gets it over
the network.
"""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from exo.ops.cli.options import DataDir, Json, Url, ask_node
from exo.ops.errors import CommandError, UsageError
from exo.ops.layers import Loaded, load_settings
from exo.ops.node_file import read_node_file
from exo.ops.secret import SECRET_VARIABLE, check_secret, find_secret, forget_secret, new_secret, store_secret
from exo.ops.terminal import print_table, say, tell

if TYPE_CHECKING:
    from exo.gateway.ports import Rekeyed
    from exo.ops.client import NodeClient
    from exo.ops.cluster_report import ClusterAnswer

_PATIENCE = 30.0


def secret(
    data_dir: DataDir = None,
    *,
    new: Annotated[bool, typer.Option("--new", help="Make another one; nodes with the old one are refused.")] = False,
) -> None:
    """Close the cluster, and print what other machines must type to belong to it."""
    loaded = load_settings({"data_dir": data_dir})
    _require_own_file(loaded)
    found = find_secret(loaded.settings, loaded.paths)
    text = found.text
    if new or not found.closed:
        text = new_secret()
        store_secret(loaded.paths, text)
        _tell_node(loaded)
    tell("The cluster is closed. On every other machine, also on those that were in it:")
    say(f"exo cluster join {text}")
    say(_make_join_line(loaded))


def join(
    secret: Annotated[str, typer.Argument(help="What `exo cluster secret` printed; `-` reads it from stdin.")],
    data_dir: DataDir = None,
) -> None:
    """Give this machine the secret of a closed cluster."""
    loaded = load_settings({"data_dir": data_dir})
    _require_own_file(loaded)
    text = check_secret(sys.stdin.read() if secret == "-" else secret, source="the given text")  # noqa: S105 - a dash
    store_secret(loaded.paths, text)
    say(str(loaded.paths.secret_file))
    if not _tell_node(loaded):
        tell("Start the node: `exo up`, with `--join HOST` if multicast does not reach the others.")


def leave(data_dir: DataDir = None) -> None:
    """Forget the secret: this machine is in the open cluster of its name again."""
    loaded = load_settings({"data_dir": data_dir})
    _require_own_file(loaded)
    if not forget_secret(loaded.paths):
        raise CommandError(f"{loaded.paths.secret_file} does not exist", remedy="the cluster is open already")
    say(f"removed {loaded.paths.secret_file}")
    _tell_node(loaded)


def show(url: Url = None, data_dir: DataDir = None, *, json: Json = False) -> None:
    """Show the cluster's name, whether it is closed, who is hub and why, whom this node reaches and refused."""
    import msgspec

    from exo.ops.cluster_report import show_reach
    from exo.ops.discovery_lines import describe_discovery, summarize_cluster

    answer = ask_node(url, data_dir, _read)
    if json:
        say(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
        return
    report = answer.report
    names = {str(member.node): member.name for member in report.members}
    for line in (
        summarize_cluster(report, names=names),
        f"this node is {report.role}: {report.why}",
        *describe_discovery(answer, now=time.time()),
    ):
        tell(line)
    rows = [
        [one.name, show_reach(report, one), one.role, one.version, one.address or "-", one.node]
        for one in sorted(report.members, key=lambda one: (one.name, one.node))
    ]
    print_table(("MEMBER", "STATUS", "ROLE", "VERSION", "ADDRESS", "ID"), rows)


async def _read(client: "NodeClient") -> "ClusterAnswer":
    from exo.ops.cluster_report import ClusterAnswer

    return await client.get("/v1/cluster", ClusterAnswer)


def _require_own_file(loaded: Loaded) -> None:
    """Refuse to write a file that no node would read."""
    settings = loaded.settings
    if settings.cluster_secret:
        raise UsageError(f"{SECRET_VARIABLE} is set here and wins over every file", remedy="change or unset it")
    if settings.cluster_secret_file is not None:
        raise UsageError(
            f"{loaded.origins['cluster_secret_file']} names {settings.cluster_secret_file}",
            remedy="write the secret there, or leave that setting out",
        )


def _tell_node(loaded: Loaded) -> bool:
    """Have a running node read its secret again; tells whether there is one."""
    node = read_node_file(loaded.paths)
    if node is None:
        return False
    if not node.api_url:
        tell("The running node has no API (--no-api) and learns of it at its next start: `exo down`, `exo up`.")
        return True
    answer = ask_node(node.api_url, None, _rekey)
    # Without a secret left there is no origin, and the node had none to begin with or has just lost it.
    if answer.origin not in {"", str(loaded.paths.secret_file)}:
        raise CommandError(
            f"the running node (process {node.pid}) goes on with the secret of {answer.origin}, which wins",
            remedy="change it there, or start the node without it",
        )
    tell(f"the running node (process {node.pid}) uses it now" if answer.closed else "the running node is open now")
    return True


async def _rekey(client: "NodeClient") -> "Rekeyed":
    from exo.gateway.ports import Rekeyed

    return await client.post("/v1/cluster/rekey", {}, Rekeyed, timeout=_PATIENCE)


def _make_join_line(loaded: Loaded) -> str:
    from exo.ops.join_line import make_join_line

    node = read_node_file(loaded.paths)
    if node is None:
        return make_join_line(loaded.settings.namespace, ())
    return make_join_line(node.cluster or loaded.settings.namespace, node.cluster_addresses)
