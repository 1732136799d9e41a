"""The OpenAPI document, where most tools look for it."""

from typing import Any

from litestar import Request, get
from litestar.types import ASGIApp

from exo.gateway.openapi import make_document
from exo.gateway.responses import json_response


@get("/openapi.json", include_in_schema=False)
async def get_openapi(request: Request[Any, Any, Any]) -> ASGIApp:
    """The same document as at `/schema`."""
    return json_response(make_document(request.app))
