"""`exo up` and `exo down`: the life of the node on this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from exo.ops.cli.options import DataDir
from exo.ops.errors import NoNodeError, UsageError
from exo.ops.layers import Loaded, load_paths, load_settings, split_given
from exo.ops.lock import is_held
from exo.ops.stopping import empty_node, stop_node
from exo.ops.terminal import say


def up(
    *,
    model: Annotated[list[str] | None, typer.Option(help="Add this model if absent and place it; repeatable.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the API; 0 takes any free one.")] = None,
    host: Annotated[str | None, typer.Option(help="Address the API listens on; 0.0.0.0 opens it.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="One directory for everything.")] = None,
    name: Annotated[str | None, typer.Option(help="What people call this node.")] = None,
    namespace: Annotated[str | None, typer.Option(help="Name of the cluster this node belongs to.")] = None,
    join: Annotated[
        list[str] | None, typer.Option(help="Dial this node at start, as host or host:port; repeatable.")
    ] = None,
    cluster_port: Annotated[int | None, typer.Option(help="Port where nodes meet; 0 takes any free one.")] = None,
    cluster_secret_file: Annotated[Path | None, typer.Option(help="File with the cluster's secret.")] = None,
    max_concurrent_requests: Annotated[
        int | None, typer.Option(help="Requests that one runner works on at once.")
    ] = None,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="DEBUG with dates; -vv libraries too.")
    ] = 0,
    local: Annotated[bool, typer.Option("--local", help="Listen on loopback only, look for no other machine.")] = False,
    no_discovery: Annotated[bool, typer.Option("--no-discovery", help="Look for nobody by multicast.")] = False,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Ask nobody for an API key.")] = False,
    autoload: Annotated[bool, typer.Option("--autoload", help="Load a known model when it is asked for.")] = False,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Run no models on this node.")] = False,
    no_api: Annotated[bool, typer.Option("--no-api", help="Serve no API and no dashboard.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Fetch nothing from the internet.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Warnings and errors only.")] = False,
    legacy_daemon: Annotated[
        bool, typer.Option("--legacy-daemon", help="Detach by a double fork, once the node is ready.")
    ] = False,
) -> int:
    """Start a node and serve its API and dashboard. `exo` alone does the same."""
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other")
    if model and no_worker:
        raise UsageError("--model needs a node that runs models; leave --no-worker out")
    if model and no_api:
        raise UsageError("--model is brought up through the API; leave --no-api out")
    flags = {
        "models": model or None,
        "port": port,
        "host": host,
        "data_dir": data_dir,
        "name": name,
        "namespace": namespace,
        "bootstrap_peers": split_given(join) if join else None,
        "cluster_port": cluster_port,
        "cluster_secret_file": cluster_secret_file,
        "local": local or None,
        "discovery": False if no_discovery else None,
        "no_auth": no_auth or None,
        "max_concurrent_requests": max_concurrent_requests,
        "verbosity": -1 if quiet else min(verbose, 2) or None,
        "autoload": autoload or None,
        "worker": False if no_worker else None,
        "api": False if no_api else None,
        "offline": offline or None,
    }
    loaded = load_settings(flags)
    if legacy_daemon:
        from exo.ops.daemon import run_detached

        return run_detached(lambda when_ready: _start(loaded, when_ready))
    return _start(loaded, _say_lines)


def _start(loaded: Loaded, when_ready: Callable[[list[str]], None]) -> int:
    # Loaded here, in the daemon if there is one: no thread of a library may exist when it forks.
    from exo.ops.start import start_node

    return start_node(loaded, when_ready=when_ready)


def _say_lines(lines: list[str]) -> None:
    say("\n".join(lines))


def down(
    data_dir: DataDir = None,
    grace: Annotated[
        float | None,
        typer.Option(help="Seconds that its requests get to end; without it, the setting shutdown_grace."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the process to end, after that.")] = 30,
) -> None:
    """Stop the node on this machine: it gets nothing new, its requests end, then the runners, then the broker.

    A first Ctrl-C ends the wait for requests, a second one the node at once.
    """
    paths = load_paths(data_dir)
    if not is_held(paths.lock_file):
        raise NoNodeError(f"no node runs on {paths.data}", remedy="nothing to stop")
    flags = {"data_dir": data_dir} if data_dir is not None else {}
    empty_node(paths, grace=load_settings(flags).settings.shutdown_grace if grace is None else grace)
    say(f"process {stop_node(paths, timeout=timeout)} has stopped")
