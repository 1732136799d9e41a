"""The built pages as files with everything a browser must be told about them.

The gateway calls `find_asset` for each GET outside the API. Nothing here knows HTTP beyond header names, and nothing
outside `static/` can be reached.
"""

import re
from pathlib import Path

import msgspec

STATIC = Path(__file__).parent / "static"

# Trusted types: text can become markup only through the policy of Svelte's own templates, so no answer of a model does.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types svelte-trusted-html"
)

# Names of files in `assets/` hold a hash of their content; every other file keeps its name over a new build.
_IMMUTABLE = "public, max-age=31536000, immutable"
_REVALIDATE = "no-cache"

_CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}

# No part may begin with a dot: that leaves out parent folders and hidden files alike.
_SAFE_PATH = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}/){0,4}[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")

_NOT_BUILT = b"""<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>exo: the dashboard is not built</title>
  </head>
  <body>
    <h1>The dashboard is not built</h1>
    <p>exo itself is running, and its API answers: see <a href="docs">its reference</a>.</p>
    <p>In a clone of exo, run <code>make dashboard</code>, then load this page again.
    It fetches Node by itself where none is installed.</p>
    <p>An installed exo without its pages was packaged on a machine without npm:
    build it again with <code>EXO_DASHBOARD=require</code>.</p>
  </body>
</html>
"""


class Asset(msgspec.Struct, frozen=True, kw_only=True):
    """One file, ready to be sent with `status` and `headers` (which include the content type)."""

    body: bytes
    content_type: str
    cache_control: str
    status: int = 200

    @property
    def headers(self) -> dict[str, str]:
        return {
            "content-type": self.content_type,
            "cache-control": self.cache_control,
            "content-security-policy": CONTENT_SECURITY_POLICY,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
        }


def find_asset(path: str, *, folder: Path = STATIC) -> Asset | None:
    """Give the file that a URL path (`/`, `/assets/index-abc.js`) names; None when there is no such file.

    Where the pages were never built, `/` is a page with status 503 that says how to build them.
    """
    name = path.lstrip("/") or "index.html"
    if not _SAFE_PATH.fullmatch(name):
        return None
    content_type = _CONTENT_TYPES.get(Path(name).suffix)
    file = folder / name
    if content_type and file.is_file():
        cache_control = _IMMUTABLE if name.startswith("assets/") else _REVALIDATE
        return Asset(body=file.read_bytes(), content_type=content_type, cache_control=cache_control)
    if name == "index.html":
        return Asset(body=_NOT_BUILT, content_type=_CONTENT_TYPES[".html"], cache_control="no-store", status=503)
    return None
