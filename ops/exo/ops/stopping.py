"""Stops the node of a data directory from outside and waits until it is gone: `exo down`, `exo uninstall --stop`."""

import asyncio
import os
import signal
import time

from exo.ops.errors import CommandError
from exo.ops.lock import is_held, read_holder
from exo.ops.node_file import RunningNode, read_node_file
from exo.ops.paths import Paths
from exo.ops.terminal import ProgressLine, show_count, tell

_POLL = 0.05
_ASK = 5.0


def empty_node(paths: Paths, *, grace: float) -> None:
    """Have the node get nothing new and wait up to `grace` seconds for what it has; a Ctrl-C ends the wait.

    A node that cannot be asked is stopped all the same: it gives its requests the same time by itself.
    """
    node = read_node_file(paths)
    if node is None or not node.api_url or grace <= 0:
        return
    try:
        asyncio.run(_empty(node, grace=grace))
    except KeyboardInterrupt:
        tell("not waiting for them any longer; Ctrl-C again ends the node at once")
    except CommandError as error:
        tell(f"it is stopped without being drained: {error}")


async def _empty(node: RunningNode, *, grace: float) -> None:
    # The HTTP library takes longer to load than most commands take to run.
    from exo.ops.client import NodeClient
    from exo.ops.draining import begin_drain, wait_until_empty

    async with NodeClient(node.api_url) as client:
        drained = await begin_drain(client, node.node_id, timeout=_ASK)
        if not drained.tasks_left:
            return
        tell(f"waiting up to {grace:g} s for {show_count(drained.tasks_left, 'request')}; Ctrl-C ends the wait")
        with ProgressLine() as line:
            left = await wait_until_empty(client, drained, show=line.show, grace=grace)
        if left:
            tell(f"{show_count(left, 'request')} cut off")


def stop_node(paths: Paths, *, timeout: float) -> int:
    """Ask the process that holds the lock to stop, wait for its end, and give its id.

    Ctrl-C while waiting tells it to end at once.
    """
    holder = read_holder(paths.lock_file)
    if holder is None:
        raise CommandError(f"{paths.lock_file} does not say which process holds it", remedy="try again in a moment")
    _signal(holder.pid)
    tell(f"stopping process {holder.pid}")
    started = time.monotonic()
    while is_held(paths.lock_file):
        if time.monotonic() - started > timeout:
            raise CommandError(
                f"process {holder.pid} has not ended after {timeout:.0f} s",
                remedy=f"look at {paths.log_file}, then `kill -9 {holder.pid}`",
            )
        try:
            time.sleep(_POLL)
        except KeyboardInterrupt:
            # The second signal of the two that a node takes.
            _signal(holder.pid)
            tell(f"ending process {holder.pid} at once")
    return holder.pid


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError as error:
        raise CommandError(
            f"process {pid} belongs to another user", remedy="stop it as that user, or as root"
        ) from error
    except ProcessLookupError:
        pass
