"""Which module renders which dialect, by the name in a stored request or by the path of a route."""

from typing import Final

from exo.gateway.dialects.dialect import DialectModule
from exo.gateway.dialects.openai_chat import from_chunks as openai_chat
from exo.gateway.errors import GatewayError
from exo.streams.requests import Dialect

DIALECTS: Final[dict[Dialect, DialectModule]] = {"openai_chat": openai_chat}

_DIALECT_OF_PREFIX: Final[dict[str, Dialect]] = {"/v1/": "openai_chat"}
"""Which dialect errors under a path prefix are written in; the management routes use OpenAI's error object too."""


def dialect_of_path(path: str) -> Dialect:
    """Give the dialect that errors of a path are written in, whether or not a route matches it."""
    for prefix, dialect in _DIALECT_OF_PREFIX.items():
        if path.startswith(prefix):
            return dialect
    return "openai_chat"


def render_error_for(path: str, error: GatewayError) -> bytes:
    """Render an error in the dialect of a path."""
    return DIALECTS[dialect_of_path(path)].render_error(error)
