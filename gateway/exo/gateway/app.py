"""Builds the ASGI app of one node. Called by `exo.ops.up`, and by tests with a `MemoryBus`.

Importing this module imports Litestar (0.6 s): the composition root does it when it serves.
"""

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from litestar import Litestar, Request
from litestar.di import Provide
from litestar.exceptions import HTTPException, InternalServerException, ValidationException
from litestar.response import Response

from exo.broker.bus import Bus
from exo.gateway.api_keys import KeyRing, admission_guard
from exo.gateway.dialects.registry import render_error_for
from exo.gateway.edge import Edge
from exo.gateway.errors import ClientGoneError, GatewayError, from_exception, headers_of
from exo.gateway.gateway import Gateway
from exo.gateway.openapi import openapi_config
from exo.gateway.routes.table import HANDLERS
from exo.gateway.settings import GatewayPorts, GatewaySettings, NodeIdentity
from exo.streams.codes import Code

_NAMED_PARAMETER: Final = re.compile(r"parameter '(\w+)'")
_CODE_OF_STATUS: Final = {
    404: Code.NOT_FOUND,
    405: Code.METHOD_NOT_ALLOWED,
    413: Code.PAYLOAD_TOO_LARGE,
}


def create_app(bus: Bus, ports: GatewayPorts, *, node: NodeIdentity, settings: GatewaySettings | None = None) -> Edge:
    """Give the app; its lifespan runs the gateway's own tasks."""
    gateway = Gateway(bus, ports, node=node, settings=settings or GatewaySettings())
    app = Litestar(
        route_handlers=list(HANDLERS),
        guards=[admission_guard(KeyRing(lambda: gateway.state), keys_required=gateway.settings.access.keys_required)],
        dependencies={"gateway": Provide(_always(gateway), sync_to_thread=False)},
        exception_handlers={Exception: render_failure},
        lifespan=[_lifespan(gateway)],
        openapi_config=openapi_config(node.version),
        request_max_body_size=gateway.settings.body_limit,
        logging_config=None,
    )
    return Edge(
        app,
        policy=gateway.settings.access,
        metrics=gateway.metrics,
        begin_leaving=gateway.begin_leaving,
        begin_shutdown=gateway.event_streams.stopping.set,
        count_answers=lambda: len(gateway.hub),
    )


def _always(gateway: Gateway) -> Callable[[], Gateway]:
    def give() -> Gateway:
        return gateway

    return give


def _lifespan(gateway: Gateway) -> Callable[[Litestar], Any]:
    @asynccontextmanager
    async def run(_app: Litestar) -> AsyncGenerator[None]:
        async with gateway.running():
            yield

    return run


def render_failure(request: Request[Any, Any, Any], failure: Exception) -> Response[bytes]:
    """Render whatever was raised, in the dialect of the path; the one place where that happens."""
    if _is_client_gone(failure):
        # Nobody reads it; the status is for the metrics, as nginx counts clients that hung up.
        return Response(b"", status_code=499, media_type="application/json")
    error = _from_framework(failure) if isinstance(failure, HTTPException) else from_exception(failure)
    return Response(
        render_error_for(request.scope["path"], error),
        status_code=error.status,
        headers=headers_of(error),
        media_type="application/json",
    )


def _is_client_gone(failure: Exception) -> bool:
    """Whether the client hung up: while it was waiting, or while it was still sending its body."""
    if isinstance(failure, InternalServerException):
        return "disconnected" in failure.detail
    return isinstance(failure, ClientGoneError)


def _from_framework(failure: HTTPException) -> GatewayError:
    """Translate what Litestar itself refuses: unknown paths, methods, parameters, too large bodies."""
    code = _CODE_OF_STATUS.get(failure.status_code)
    if code is Code.NOT_FOUND:
        return GatewayError(code, failure.detail if failure.detail != "Not Found" else "There is no such route.")
    if code is Code.METHOD_NOT_ALLOWED:
        allow = (failure.headers or {}).get("allow", "")
        return GatewayError(code, f"This route takes {allow}.", headers={"Allow": allow})
    if code is Code.PAYLOAD_TOO_LARGE:
        return GatewayError(code, "The body is larger than this node accepts.")
    if failure.status_code >= 500:
        return from_exception(failure)
    return _invalid(failure)


def _invalid(failure: HTTPException) -> GatewayError:
    if isinstance(failure, ValidationException) and isinstance(failure.extra, list) and failure.extra:
        first = cast("dict[str, str]", failure.extra[0])
        return GatewayError(Code.INVALID_REQUEST, first.get("message", failure.detail), param=first.get("key"))
    named = _NAMED_PARAMETER.search(failure.detail)
    return GatewayError(Code.INVALID_REQUEST, failure.detail, param=named[1] if named else None)
