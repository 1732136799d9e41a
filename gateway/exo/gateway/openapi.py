"""The OpenAPI document of the HTTP API: what Litestar reads off the routes, plus bodies, State and errors.

Served at `/openapi.json` and `/schema`; `/docs` renders it without loading anything from elsewhere.
"""

from typing import Any, Final

import msgspec
from litestar import Request, Router
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from exo.gateway.api_keys import NEEDS
from exo.gateway.dialects.openai_chat.types import ChatRequest
from exo.gateway.errors import ErrorBody
from exo.gateway.routes.cluster import ClusterView
from exo.gateway.routes.imports import AddBody, ImportBody
from exo.gateway.routes.instances import Acknowledgement, CreateBody, PlaceBody
from exo.gateway.routes.keys import NewKeyBody
from exo.gateway.wire.instances import WireInstance
from exo.streams.state import State

REQUESTS: Final[dict[tuple[str, str], Any]] = {
    ("/v1/chat/completions", "post"): ChatRequest,
    ("/instance", "post"): CreateBody,
    ("/place_instance", "post"): PlaceBody,
    ("/models/add", "post"): AddBody,
    ("/models/import", "post"): ImportBody,
    ("/v1/keys", "post"): NewKeyBody,
}
"""Bodies that routes decode themselves, so that their errors follow the dialect."""

RESPONSES: Final[dict[tuple[str, str], Any]] = {
    ("/state", "get"): State,
    ("/instance", "get"): list[dict[str, WireInstance]],
    ("/instance/{instance_id}", "get"): dict[str, WireInstance],
    ("/instance/placement", "get"): dict[str, WireInstance],
    ("/instance", "post"): Acknowledgement,
    ("/place_instance", "post"): Acknowledgement,
    ("/v1/cluster", "get"): ClusterView,
}
"""Answers that routes encode themselves."""

_TEMPLATE: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"


class _Renderer(JsonRenderPlugin):
    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return msgspec.json.encode(complete_document(openapi_schema))


def openapi_config(version: str) -> OpenAPIConfig:
    """Give Litestar's configuration; its own pages with assets of a CDN are left out."""
    return OpenAPIConfig(
        title="exo",
        version=version,
        description="Chat completions over the models of this cluster, and the management of the cluster itself.",
        use_handler_docstrings=True,
        openapi_router=Router("/schema", route_handlers=[], opt={NEEDS: frozenset()}, include_in_schema=False),
        render_plugins=[_Renderer(path="/")],
    )


def complete_document(document: dict[str, Any]) -> dict[str, Any]:
    """Give a copy with the bodies, answers and errors that Litestar cannot see."""
    kinds = [*REQUESTS.values(), *RESPONSES.values(), ErrorBody]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_TEMPLATE)
    bodies = dict(zip(REQUESTS, schemas, strict=False))
    answers = dict(zip(RESPONSES, schemas[len(REQUESTS) :], strict=False))
    refusal = {"description": "Refused; `code` says why", "content": {_JSON: {"schema": schemas[-1]}}}
    paths: dict[str, Any] = {}
    for path, item in document["paths"].items():
        paths[path] = {
            method: _complete(operation, bodies.get((path, method)), answers.get((path, method)), refusal)
            for method, operation in item.items()
        }
    known = document.get("components", {})
    return {
        **document,
        "paths": paths,
        "components": {**known, "schemas": {**known.get("schemas", {}), **components}},
    }


def _complete(operation: dict[str, Any], body: Any, answer: Any, refusal: dict[str, Any]) -> dict[str, Any]:
    responses = {status: response for status, response in operation["responses"].items() if status != "400"}
    completed = {**operation, "responses": {**responses, "default": refusal}}
    if body is not None:
        completed["requestBody"] = {"required": True, "content": {_JSON: {"schema": body}}}
    if answer is not None:
        completed["responses"]["200"] = {"description": "OK", "content": {_JSON: {"schema": answer}}}
    return completed
