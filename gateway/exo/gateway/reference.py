"""The page at `/docs`: one self-contained HTML file that lists the routes of `/openapi.json`."""

import base64
import hashlib
from typing import Final

_SCRIPT: Final = """
const escape = (text) => String(text ?? "").replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const rows = (list) => list.map((p) =>
  `<tr><td><code>${escape(p.name)}</code></td><td>${escape(p.in)}</td><td>${escape(p.description)}</td></tr>`).join("");
const section = (path, method, op) => `<details><summary><b>${method.toUpperCase()}</b> <code>${escape(path)}</code>
  <span>${escape(op.summary)}</span></summary><p>${escape(op.description)}</p>
  ${op.parameters?.length ? `<table>${rows(op.parameters)}</table>` : ""}
  ${op.requestBody ? `<pre>${escape(JSON.stringify(op.requestBody, null, 1))}</pre>` : ""}</details>`;
fetch("openapi.json").then((r) => r.json()).then((api) => {
  document.querySelector("h1").textContent = `${api.info.title} ${api.info.version}`;
  document.querySelector("main").innerHTML = Object.entries(api.paths).flatMap(([path, item]) =>
    Object.entries(item).filter(([, op]) => op.responses).map(([method, op]) => section(path, method, op))).join("");
}).catch((error) => { document.querySelector("main").textContent = `The reference cannot be loaded: ${error}`; });
"""
_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
details { border-bottom: 1px solid #8884; padding: .4rem 0; } summary { cursor: pointer; }
summary span { opacity: .7; } td { padding: .1rem .8rem .1rem 0; vertical-align: top; } pre { overflow: auto; }
"""


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


REFERENCE_POLICY: Final = (
    f"default-src 'none'; connect-src 'self'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Content security policy: only the page's own script and style run, and only this node is asked."""

REFERENCE_PAGE: Final = (
    "<!doctype html><html lang=en><head><meta charset=utf-8>"
    '<meta name=viewport content="width=device-width, initial-scale=1">'
    f"<title>exo: API reference</title><style>{_STYLE}</style></head>"
    '<body><h1>exo</h1><p>Machine-readable at <a href="openapi.json">openapi.json</a>.</p>'
    f"<main>Loading ...</main><script>{_SCRIPT}</script></body></html>"
).encode()
