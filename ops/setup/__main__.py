"""The bootstrap behind the Makefile: `python3 ops/setup STEP`, with nothing but Python's standard library.

Each step does only what is missing. It never touches the system's Python and never downloads an interpreter.
"""

import os
import sys
from collections.abc import Sequence

from checks import run_checks
from environment import ensure_environment
from locks import write_locks
from node_tool import ensure_node
from report import SetupError, say, stop, warn
from system_packages import ensure_chromium, ensure_openblas
from tree import DASHBOARD, run


def build_dashboard() -> None:
    """Build the pages when their sources changed; needs the virtual environment only to fetch node."""
    mode = os.environ.get("EXO_DASHBOARD", "require")
    run([sys.executable, DASHBOARD / "build.py", mode], env={} if mode == "skip" else ensure_node())


def prepare_up() -> None:
    """Everything before `exo up`. A dashboard that cannot be built is said loudly, but does not keep the API down."""
    ensure_environment("run")
    ensure_openblas()
    try:
        build_dashboard()
    except SetupError as error:
        warn(f"starting without the dashboard, because {error}")


def prepare_development() -> None:
    """Everything before the tests: nothing may be missing here."""
    ensure_environment("dev")
    ensure_openblas()
    build_dashboard()


def check(arguments: Sequence[str]) -> int:
    """Set everything up, then run all stages; returns the exit code."""
    prepare_development()
    ensure_chromium()
    return run_checks(ensure_node(), arguments)


def main(arguments: Sequence[str]) -> int:
    """Perform the step that the first argument names; returns the exit code."""
    match arguments:
        case ["up"]:
            prepare_up()
        case ["development"]:
            prepare_development()
        case ["dashboard"]:
            ensure_environment("run")
            build_dashboard()
        case ["lock", *rest]:
            write_locks(rest)
        case ["check", *rest]:
            return check(rest)
        case _:
            words = " ".join(arguments)
            warn(f"unknown step {words!r}; usage: ops/setup up | development | dashboard | lock [...] | check [...]")
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SetupError as error:
        stop(str(error))
    except KeyboardInterrupt:
        say("")
        sys.exit(130)
