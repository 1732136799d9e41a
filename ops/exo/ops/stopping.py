"""Stops the node of a data directory from outside and waits until it is gone: `exo down`, `exo uninstall --stop`."""

import os
import signal
import time

from exo.ops.errors import CommandError
from exo.ops.lock import is_held, read_holder
from exo.ops.paths import Paths
from exo.ops.terminal import tell

_POLL = 0.05


def stop_node(paths: Paths, *, timeout: float) -> int:
    """Ask the process that holds the lock to stop, wait for its end, and give its id."""
    holder = read_holder(paths.lock_file)
    if holder is None:
        raise CommandError(f"{paths.lock_file} does not say which process holds it", remedy="try again in a moment")
    try:
        os.kill(holder.pid, signal.SIGTERM)
    except PermissionError as error:
        raise CommandError(
            f"process {holder.pid} belongs to another user", remedy="stop it as that user, or as root"
        ) from error
    except ProcessLookupError:
        pass
    tell(f"stopping process {holder.pid}")
    started = time.monotonic()
    while is_held(paths.lock_file):
        if time.monotonic() - started > timeout:
            raise CommandError(
                f"process {holder.pid} has not ended after {timeout:.0f} s",
                remedy=f"look at {paths.log_file}, then `kill -9 {holder.pid}`",
            )
        time.sleep(_POLL)
    return holder.pid
