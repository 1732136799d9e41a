"""`exo up --legacy-daemon`: detach by a double fork, for init systems that expect it.

The process that was started waits until the node is ready or has failed, says so, and exits with the
node's verdict. Service managers run `exo up` in the foreground and need none of this.
"""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

import msgspec

from exo.ops.errors import FAILED, OK, CommandError

WhenReady = Callable[[list[str]], None]


class _Verdict(msgspec.Struct, frozen=True):
    code: int
    lines: list[str]


def run_detached(start: Callable[[WhenReady], int]) -> int:
    """Run `start` in a process of its own; returns in the caller's process, once that one is ready.

    Must be called before any thread or event loop exists. `start` is handed what it calls when it
    is ready.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        if os.fork() != 0:
            os._exit(OK)
        _run_as_daemon(start, writer)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as pipe:
        return _report(pipe.read())


def _run_as_daemon(start: Callable[[WhenReady], int], writer: int) -> NoReturn:
    """In the grandchild: no terminal, the root directory, and one message to the one who waits."""
    _detach_streams()
    # It keeps no file system busy that somebody wants to unmount.
    os.chdir("/")

    def verdict(code: int, lines: list[str]) -> None:
        nonlocal writer
        if writer >= 0:
            os.write(writer, msgspec.json.encode(_Verdict(code, lines)))
            os.close(writer)
            writer = -1

    try:
        code = start(lambda lines: verdict(OK, lines))
        verdict(code, ["exo stopped before it was ready; the log file says why"])
    except CommandError as error:
        code = error.exit_code
        verdict(code, [f"error: {error}", *error.evidence])
    except BaseException as error:
        verdict(FAILED, [f"error: exo could not start: {error!r}"])
        raise
    os._exit(code)


def _detach_streams() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def _report(message: bytes) -> int:
    if not message:
        sys.stderr.write("error: exo died while it started; the log file says why\n")
        return FAILED
    verdict = msgspec.json.decode(message, type=_Verdict)
    stream = sys.stdout if verdict.code == OK else sys.stderr
    stream.write("\n".join(verdict.lines) + "\n")
    return verdict.code
