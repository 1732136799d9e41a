"""Starts one node in this process: everything around `exo.ops.up.run_node`, in the order it must happen.

The lock comes first, so that a second node touches nothing of the first one's; then logging, so that
all that follows is in the file.
"""

import os
import resource
from collections.abc import Callable

import structlog
import uvloop

from exo.broker.errors import BrokerError
from exo.ops.banner import make_banner
from exo.ops.errors import CommandError
from exo.ops.identity import load_identity
from exo.ops.layers import Loaded
from exo.ops.lock import DirectoryLock
from exo.ops.logging import set_up_logging
from exo.ops.machine import read_fingerprint
from exo.ops.node_file import remove_node_file
from exo.ops.secret import SECRET_VARIABLE, find_secret
from exo.ops.settings import runner_environment

OPEN_FILES = 65_535
"""Each stream, each runner's pipes and each broker connection is one."""

log = structlog.get_logger(__name__)


def start_node(loaded: Loaded, *, when_ready: Callable[[list[str]], None]) -> int:
    """Run a node until it is told to stop; gives the exit code.

    `when_ready` is called once, with the lines for the person who started it. Raises
    `DirectoryInUseError` when a node runs on this data directory already, and another `CommandError`
    for whatever else a person can put right.
    """
    from exo.ops.up import run_node

    _prepare(loaded)
    secret = find_secret(loaded.settings, loaded.paths)
    # Runners and converters inherit the environment, and have no business with the secret.
    os.environ.pop(SECRET_VARIABLE, None)
    os.environ.update(runner_environment(loaded.settings))
    with DirectoryLock(loaded.paths.lock_file):
        identity = load_identity(loaded.paths, fingerprint=read_fingerprint())
        set_up_logging(verbosity=loaded.settings.verbosity, log_file=loaded.paths.log_file)
        limit = raise_file_limit()
        for line in make_banner(
            loaded.settings, loaded.paths, node_id=identity.node, pid=os.getpid(), closed=secret.closed
        ):
            log.info(line)
        if identity.notice:
            log.warning(identity.notice)
        for warning in loaded.warnings:
            log.warning(warning)
        if limit < 4096:
            log.warning("few files may be open at once", limit=limit, remedy="raise `ulimit -n` to 65535")
        try:
            return uvloop.run(run_node(loaded, identity=identity, secret=secret, when_ready=when_ready))
        except BrokerError as error:
            raise CommandError(str(error), evidence=getattr(error, "log_tail", ())) from error
        finally:
            remove_node_file(loaded.paths.node_file)


def _prepare(loaded: Loaded) -> None:
    try:
        loaded.paths.prepare()
    except OSError as error:
        raise CommandError(
            f"{error.filename}: {error.strerror}", remedy="give it to your user, or choose another --data-dir"
        ) from error


def raise_file_limit() -> int:
    """Allow as many open files as the system lets us, up to 65,535; gives the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    wanted = OPEN_FILES if unlimited else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            # macOS caps below what it reports; what we have must do.
            return soft
        return wanted
    return soft if soft != resource.RLIM_INFINITY else wanted
