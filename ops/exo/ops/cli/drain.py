"""`exo drain`: empty a node for maintenance, and take it back."""

from typing import TYPE_CHECKING, Annotated

import typer

from exo.ops.cli.options import DataDir, Url, ask_node
from exo.ops.terminal import ProgressLine, say, show_count, tell

if TYPE_CHECKING:
    from exo.ops.client import NodeClient


def drain(
    node: Annotated[str, typer.Argument(help="Its name or id; `exo status` shows both.", show_default=False)],
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Let it have new requests and instances again.")] = False,
    url: Url = None,
    data_dir: DataDir = None,
) -> None:
    """Give a node nothing new and wait until it has finished what it has. Ctrl-C stops the waiting only."""
    if undo:
        say(ask_node(url, data_dir, lambda client: _undo(client, node)))
        return
    try:
        say(ask_node(url, data_dir, lambda client: _drain(client, node)))
    except KeyboardInterrupt:
        tell(f"{node} stays drained; `exo drain {node} --undo` takes it back, and so does a new start")
        raise


async def _drain(client: "NodeClient", node: str) -> str:
    from exo.ops.draining import begin_drain, leaves_none, wait_until_empty

    drained = await begin_drain(client, node)
    if await leaves_none(client, drained):
        tell("no other node can run models: new requests are refused until one is taken back or joins")
    with ProgressLine() as line:
        left = await wait_until_empty(client, drained, show=line.show)
    if left:
        return f"{drained.name} is not drained any more, with {show_count(left, 'request')} at work"
    return f"{drained.name} is drained: it works on nothing and gets nothing new"


async def _undo(client: "NodeClient", node: str) -> str:
    from exo.ops.draining import undo_drain

    taken = await undo_drain(client, node)
    return f"{taken.name} gets new requests and instances again"
