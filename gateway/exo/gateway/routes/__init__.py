"""The management routes and the dialects' endpoints, one noun per file."""

from typing import Final

from litestar.handlers import HTTPRouteHandler

from exo.gateway.routes import chat

HANDLERS: Final[tuple[HTTPRouteHandler, ...]] = (chat.complete_chat,)
