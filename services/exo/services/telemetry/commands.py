"""Asks the programs of the operating system. Short questions only; never through a shell."""

import subprocess
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)

PATIENCE = 10.0
"""Seconds; `system_profiler` takes two."""

Ask = Callable[..., str]
"""`ask(*command)` gives what the command prints; tests hand in recorded answers."""


def ask(*command: str) -> str:
    """Give what a program prints; empty when it is not there, fails or does not end."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.debug("a program cannot be asked", command=command[0], error=str(error))
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
