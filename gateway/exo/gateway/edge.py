"""The outermost layer: what holds for every request, also for those that match no route.

Checks Host and Origin, answers CORS preflights, gives each response a request id, counts it. An ASGI
wrapper around the Litestar app, because Litestar's own middleware never sees unmatched paths.
"""

import re
import uuid
from collections.abc import Callable
from typing import Final

import structlog
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from exo.gateway.auth import AccessPolicy, check_access
from exo.gateway.dialects.registry import render_error_for
from exo.gateway.errors import GatewayError, headers_of
from exo.gateway.metrics import Metrics

log = structlog.get_logger(__name__)

REQUEST_ID: Final = b"x-request-id"
_SAFE_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_EXPOSED: Final = b"X-Request-Id, Retry-After"
_Headers = list[tuple[bytes, bytes]]


class Edge:
    """Wraps the app. One instance per gateway."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        policy: AccessPolicy,
        metrics: Metrics,
        begin_leaving: Callable[[], None],
        begin_shutdown: Callable[[], None],
        count_answers: Callable[[], int],
    ) -> None:
        self._app = app
        self._policy = policy
        self._metrics = metrics
        self.begin_leaving = begin_leaving
        """Lets lost requests end as they were lost; called when this node is about to stop."""
        self.begin_shutdown = begin_shutdown
        """Ends the streams that have no end of their own; called before connections are waited for."""
        self.count_answers = count_answers
        """Gives how many answers are on their way to clients, whichever node makes them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; everything but HTTP passes through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"")
        extra = [(REQUEST_ID, _request_id(headers)), *_cors_headers(origin)]
        responder = _Responder(send, extra)
        try:
            check_access(
                self._policy, host=headers.get(b"host", b"").decode("latin-1"), origin=origin.decode("latin-1")
            )
        except GatewayError as error:
            # Without CORS headers: the page must not read even the refusal.
            responder.extra = extra[:1]
            await _send_error(responder, error, path=scope["path"])
        else:
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                await _send_preflight(responder, headers)
            else:
                await self._app(scope, receive, responder)
        route = scope.get("path_template") or "unmatched"
        self._metrics.requests.labels(scope["method"], route, str(responder.status)).inc()
        log.debug("answered a request", method=scope["method"], route=route, status=responder.status)


class _Responder:
    """`send`, adding our headers to the start of the response."""

    def __init__(self, send: Send, extra: _Headers) -> None:
        self._send = send
        self.extra = extra
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], *self.extra]
        await self._send(message)


def _request_id(headers: dict[bytes, bytes]) -> bytes:
    given = headers.get(REQUEST_ID, b"")
    return given if _SAFE_ID.fullmatch(given) else uuid.uuid4().hex.encode()


def _cors_headers(origin: bytes) -> _Headers:
    if not origin:
        return []
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"Origin"),
    ]


async def _send_preflight(send: Send, headers: dict[bytes, bytes]) -> None:
    allowed = [
        (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, DELETE"),
        (b"access-control-allow-headers", headers.get(b"access-control-request-headers", b"*")),
        (b"access-control-max-age", b"600"),
        (b"content-length", b"0"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": allowed})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_error(send: Send, error: GatewayError, *, path: str) -> None:
    body = render_error_for(path, error)
    headers = [(name.lower().encode(), value.encode()) for name, value in headers_of(error).items()]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
