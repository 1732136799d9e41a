"""The options that several commands share, and how they find the node."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from exo.ops.errors import NoNodeError
from exo.ops.layers import load_paths
from exo.ops.node_file import require_node

if TYPE_CHECKING:
    from exo.ops.client import NodeClient

T = TypeVar("T")

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="The data directory of the node, as `exo up` was told.")
]
Url = Annotated[
    str | None,
    typer.Option("--url", envvar="EXO_URL", help="The node's address; without it, the node on this machine."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def find_url(url: str | None, data_dir: Path | None) -> str:
    """Give the address of the API; `NoNodeError` when no node runs or its API is off."""
    if url:
        return url if "://" in url else f"http://{url}"
    node = require_node(load_paths(data_dir))
    if not node.api_url:
        raise NoNodeError("the node on this machine has no API (--no-api)", remedy="name another one with --url")
    return node.api_url


def ask_node(url: str | None, data_dir: Path | None, work: Callable[["NodeClient"], Awaitable[T]]) -> T:
    """Find the node, connect, and do the work."""
    # The HTTP library takes longer to load than most commands take to run; help and completion need none.
    from exo.ops.client import NodeClient

    found = find_url(url, data_dir)

    async def work_and_close() -> T:
        async with NodeClient(found) as client:
            return await work(client)

    return asyncio.run(work_and_close())
