"""`python -m exo.runners`: the process behind one shard, started by a node and never by hand.

Standard input and output carry frames (`exo.streams.pipe`); whatever a library prints goes to
standard error, of which the node keeps the last lines. SIGTERM stops, SIGINT is ignored: a terminal
sends it to the whole group, and the node decides what it means.
"""

import os
import signal
import sys
import threading

import structlog

from exo.runners.engines.factory import build_engine
from exo.runners.inbox import Inbox
from exo.runners.lifecycle import Lifecycle
from exo.runners.outbox import NODE_GONE, Outbox
from exo.streams.pipe import Start

WRONG_START = 2
"""Exit status when the first frame is not a `Start`."""


def main() -> int:
    """Serve until told to stop; give the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Masked before any thread starts, so that only the one that waits for it gets it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    outbox = Outbox(_take_standard_output())
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr), processors=_list_processors())
    inbox = Inbox(sys.stdin.buffer)
    start = inbox.read()
    if start is None:
        return NODE_GONE
    if not isinstance(start, Start):
        sys.stderr.write("error: runners are started by a node; use `exo place MODEL`\n")
        return WRONG_START
    lifecycle = Lifecycle(start, inbox=inbox, outbox=outbox, build=build_engine)
    threading.Thread(target=_wait_for_sigterm, args=(lifecycle,), name="sigterm", daemon=True).start()
    return lifecycle.run()


def _take_standard_output() -> int:
    """Keep the real standard output for frames and let everything else print to standard error."""
    frames = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return frames


def _wait_for_sigterm(lifecycle: Lifecycle) -> None:
    signal.sigwait({signal.SIGTERM})
    lifecycle.stop(0)


def _list_processors() -> list[structlog.typing.Processor]:
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ]


def _exit(status: int) -> None:
    """Leave without waiting for threads: the inbox sits in a read that only the node can end."""
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _exit(main())
