"""What the bootstrap says to the person at the terminal, and how it stops.

Every step prints through these few functions; nothing here decides anything.
"""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn


class SetupError(Exception):
    """A step cannot go on; the message says what to do about it."""


def say(text: str) -> None:
    """Print one line at once, so that it stands before the output of the child that follows."""
    print(text, flush=True)


def warn(text: str) -> None:
    """Print a line that matters but stops nothing."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def stop(text: str) -> NoReturn:
    """Print why nothing more can be done, and leave."""
    print(f"error: {text}", file=sys.stderr, flush=True)
    sys.exit(1)


@contextmanager
def timed(what: str) -> Generator[None]:
    """Name a piece of work before it starts and give its duration when it ended well."""
    say(f"-- {what}")
    start = time.monotonic()
    yield
    say(f"-- {what}: done in {time.monotonic() - start:.1f} s")
