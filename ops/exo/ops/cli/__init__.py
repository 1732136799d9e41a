"""The command `exo`.

`main` is the entry point: it knows that `exo` alone is `exo up`, turns errors into one line and an
exit code, and loads as little as it can before it knows what is asked.
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from exo.ops.errors import FAILED, INTERRUPTED, OK, USAGE, CommandError

if TYPE_CHECKING:
    from typer.exceptions import TyperException

_ANSWERED_BY_ROOT = frozenset({"--help", "-h", "--version", "--install-completion", "--show-completion"})


def main() -> None:
    """Run `exo` with the arguments of this process."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; gives the exit code."""
    if list(arguments) == ["--version"]:
        return _print_version()
    try:
        return _dispatch(arguments)
    except CommandError as error:
        return _fail(f"error: {error}", error.evidence, code=error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def route(arguments: Sequence[str]) -> list[str]:
    """Name the command: flags without one belong to `up`, whose upstream spellings are translated."""
    from exo.ops.upstream import translate_flags

    words = list(arguments)
    if not words or (words[0].startswith("-") and words[0] not in _ANSWERED_BY_ROOT):
        words.insert(0, "up")
    return [words[0], *translate_flags(words[1:])] if words[0] == "up" else words


def _dispatch(arguments: Sequence[str]) -> int:
    from typer.exceptions import Abort, TyperException

    from exo.ops.cli.app import app

    try:
        result = app(args=route(arguments), prog_name="exo", standalone_mode=False)
    except Abort:
        return INTERRUPTED
    except TyperException as error:
        return _fail(f"error: {error.format_message()}", [_point_to_help(error)], code=USAGE)
    return result if isinstance(result, int) else OK


def _point_to_help(error: "TyperException") -> str:
    """Name the help of the command that was called wrongly."""
    context = getattr(error, "ctx", None)
    words = context.command_path if context is not None else "exo"
    return f"`{words} --help` shows how it is used" if words != "exo" else "`exo --help` lists all commands"


def _fail(line: str, more: Sequence[str], *, code: int = FAILED) -> int:
    sys.stdout.flush()
    sys.stderr.write("\n  ".join([line, *more]) + "\n")
    return code


def _print_version() -> int:
    from importlib.metadata import version

    sys.stdout.write(f"exo {version('exo')}\n")
    return OK
