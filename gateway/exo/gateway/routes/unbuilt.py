"""Upstream's routes that no issue has built yet: each answers 501 and says so, in place of a puzzling 404."""

from typing import Any, Final

from litestar import Request, route
from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from exo.gateway.errors import GatewayError
from exo.streams.codes import Code

IMAGES: Final = "image models are not served yet"
OLLAMA: Final = "the Ollama dialect is not built yet; use /v1/chat/completions"
LINKS: Final = "links between prefill and decode instances are not built yet"
DOWNLOADS: Final = "downloads from a hub are not built yet; use POST /models/add or /models/import"
TRACES: Final = "traces are not built yet"

UNBUILT: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    ("/v1/instance-links", ("POST",), LINKS),
    ("/v1/instance-links/{link_id:str}", ("PUT", "DELETE"), LINKS),
    ("/models/search", ("GET",), "searching a hub is not built yet"),
    ("/bench/chat/completions", ("POST",), "the bench variant is not built yet; use /v1/chat/completions"),
    ("/v1/images/generations", ("POST",), IMAGES),
    ("/bench/images/generations", ("POST",), IMAGES),
    ("/v1/images/edits", ("POST",), IMAGES),
    ("/bench/images/edits", ("POST",), IMAGES),
    ("/images", ("GET",), IMAGES),
    ("/images/{image_id:str}", ("GET",), IMAGES),
    ("/v1/messages", ("POST",), "the Anthropic dialect is not built yet; use /v1/chat/completions"),
    ("/v1/responses", ("POST",), "the Responses dialect is not built yet; use /v1/chat/completions"),
    ("/v1/completions", ("POST",), "the legacy completions dialect is not built yet; use /v1/chat/completions"),
    ("/v1/embeddings", ("POST",), "embeddings are not served yet"),
    ("/ollama", ("HEAD", "GET"), OLLAMA),
    ("/ollama/api/version", ("HEAD", "GET"), OLLAMA),
    ("/ollama/v1/chat/completions", ("POST",), OLLAMA),
    ("/ollama/api/chat", ("POST",), OLLAMA),
    ("/ollama/api/api/chat", ("POST",), OLLAMA),
    ("/ollama/api/v1/chat", ("POST",), OLLAMA),
    ("/ollama/api/generate", ("POST",), OLLAMA),
    ("/ollama/api/tags", ("GET",), OLLAMA),
    ("/ollama/api/api/tags", ("GET",), OLLAMA),
    ("/ollama/api/v1/tags", ("GET",), OLLAMA),
    ("/ollama/api/show", ("POST",), OLLAMA),
    ("/ollama/api/ps", ("GET",), OLLAMA),
    ("/download/start", ("POST",), DOWNLOADS),
    ("/download/cancel", ("POST",), DOWNLOADS),
    ("/download/{node_id:str}/{model_id:path}", ("DELETE",), DOWNLOADS),
    ("/v1/traces", ("GET",), TRACES),
    ("/v1/traces/delete", ("POST",), TRACES),
    ("/v1/traces/{trace_id:str}", ("GET",), TRACES),
    ("/v1/traces/{trace_id:str}/stats", ("GET",), TRACES),
    ("/v1/traces/{trace_id:str}/raw", ("GET",), TRACES),
)
"""Path, methods and reason. An issue that builds a route removes its line; a golden test walks upstream's list."""


def _refuse(path: str, methods: tuple[str, ...], reason: str) -> HTTPRouteHandler:
    async def refuse(request: Request[Any, Any, Any]) -> ASGIApp:
        raise GatewayError(Code.NOT_BUILT, f"{request.method} {request.url.path}: {reason}.")

    decorate = route(
        path, http_method=[HttpMethod(method) for method in methods], include_in_schema=False, status_code=501
    )
    return decorate(refuse)


UNBUILT_HANDLERS: Final = tuple(_refuse(*entry) for entry in UNBUILT)
