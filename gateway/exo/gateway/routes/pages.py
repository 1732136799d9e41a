"""The dashboard and the API's reference page; everything else that nobody serves is a JSON 404."""

from typing import Any, cast

from litestar import Request, get, route
from litestar.enums import HttpMethod
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from exo.dashboard.assets import find_asset
from exo.gateway.errors import GatewayError
from exo.gateway.reference import REFERENCE_PAGE, REFERENCE_POLICY
from exo.streams.codes import Code


@get("/docs", include_in_schema=False)
async def get_docs() -> ASGIApp:
    """The reference, rendered from `/openapi.json` in the browser; nothing is loaded from elsewhere."""
    headers = {"content-security-policy": REFERENCE_POLICY, "x-content-type-options": "nosniff"}
    return ASGIResponse(body=REFERENCE_PAGE, media_type="text/html", headers=headers)


@get("/openapi.json", include_in_schema=False)
async def get_openapi(request: Request[Any, Any, Any]) -> ASGIApp:
    """The same document as at `/schema`."""
    config = request.app.openapi_config
    assert config is not None
    plugin = cast("Any", config.render_plugins[0])
    body: bytes = plugin.render(request, request.app.openapi_schema.to_schema())
    return ASGIResponse(body=body, media_type="application/json")


@route(["/", "/{path:path}"], http_method=[HttpMethod.GET, HttpMethod.HEAD], status_code=200, include_in_schema=False)
async def get_page(request: Request[Any, Any, Any]) -> ASGIApp:
    """A file of the dashboard, or 404: its pages live behind `#`, so no unknown path is a page."""
    path = request.scope["path"]
    asset = find_asset(path)
    if asset is None:
        raise GatewayError(Code.NOT_FOUND, f"There is no {path} here; /docs lists the routes.")
    return ASGIResponse(body=asset.body, status_code=asset.status, headers=asset.headers, media_type=asset.content_type)


@route(
    "/{path:path}",
    http_method=[HttpMethod.POST, HttpMethod.PUT, HttpMethod.PATCH, HttpMethod.DELETE],
    status_code=404,
    include_in_schema=False,
)
async def refuse_unknown(request: Request[Any, Any, Any]) -> ASGIApp:
    """404 for writes to unknown paths, which would else be told that GET is allowed."""
    raise GatewayError(Code.NOT_FOUND, f"There is no {request.scope['path']} here; /docs lists the routes.")
