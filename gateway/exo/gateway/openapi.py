"""The OpenAPI document of the HTTP API, made from the routes themselves.

Served at `/openapi.json` and `/schema`; `/docs` renders it without loading anything from elsewhere.
"""

from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin


def openapi_config(version: str) -> OpenAPIConfig:
    """Give Litestar's configuration; its own pages with assets of a CDN are left out."""
    return OpenAPIConfig(
        title="exo",
        version=version,
        description="Chat completions over the models of this cluster, and the management of the cluster itself.",
        use_handler_docstrings=True,
        path="/schema",
        render_plugins=[JsonRenderPlugin(path="/")],
    )
