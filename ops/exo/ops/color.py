"""When to colour. Apart from everything else, because the quick commands must not load structlog."""

import os
from collections.abc import Mapping
from typing import TextIO


def wants_color(stream: TextIO, environment: Mapping[str, str] | None = None) -> bool:
    """Whether to colour what goes to this stream: a terminal, and nobody said NO_COLOR."""
    environment = os.environ if environment is None else environment
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
