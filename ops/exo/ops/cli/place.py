"""`exo place` and `exo stop`: models come up and go down."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from exo.ops.cli.options import DataDir, Url, ask_node
from exo.ops.errors import CommandError
from exo.ops.terminal import ProgressLine, say

if TYPE_CHECKING:
    from exo.ops.client import NodeClient


def place(
    model: Annotated[str, typer.Argument(help="The model; `exo models list` shows all.", show_default=False)],
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it is ready.")] = False,
    another: Annotated[bool, typer.Option("--another", help="One more copy, even if one runs already.")] = False,
    sharding: Annotated[Literal["Pipeline", "Tensor"], typer.Option(help="How it is divided.")] = "Pipeline",
    min_nodes: Annotated[int, typer.Option(min=1, help="Nodes to spread it over.")] = 1,
    context_length: Annotated[
        int, typer.Option(min=0, help="Tokens to reserve memory for; 0 leaves it to the model.")
    ] = 0,
    url: Url = None,
    data_dir: DataDir = None,
) -> None:
    """Start a model. Prints the instance's id, or with --wait that it is ready."""
    body: dict[str, Any] = {
        "model_id": model,
        "only_if_absent": not another,
        "sharding": sharding,
        "min_nodes": min_nodes,
        "context_length": context_length,
    }
    say(ask_node(url, data_dir, lambda client: _place(client, body, wait=wait)))


async def _place(client: "NodeClient", body: dict[str, Any], *, wait: bool) -> str:
    from exo.ops.placing import place as ask
    from exo.ops.placing import wait_until_ready

    placed = await ask(client, body)
    if not wait:
        return placed.instance_id
    with ProgressLine() as line:
        await wait_until_ready(client, placed, show=line.show)
    return f"{placed.model_card.model_id} is ready" if sys.stdout.isatty() else placed.instance_id


def stop(
    what: Annotated[
        str, typer.Argument(metavar="MODEL|INSTANCE", help="A model, or one instance of it.", show_default=False)
    ],
    url: Url = None,
    data_dir: DataDir = None,
) -> None:
    """Stop an instance, or every instance of a model. Requests at work end with a reason."""
    for instance in ask_node(url, data_dir, lambda client: _stop(client, what)):
        say(instance)


async def _stop(client: "NodeClient", what: str) -> list[str]:
    from exo.ops.api_path import fill_path
    from exo.ops.cluster_view import ClusterView, name_instances

    view = await client.get("/state", ClusterView)
    found = list(name_instances(view, what)) or list(name_instances(view, await _resolve(client, what)))
    if not found:
        raise CommandError(f"no instance of {what} is placed", remedy="`exo ps` lists all instances")
    for instance in found:
        await client.delete(fill_path("/instance/{}", instance.id, what="id of an instance"), dict)
    return [instance.id for instance in found]


async def _resolve(client: "NodeClient", name: str) -> str:
    """Give the id behind an alias such as `starter`."""
    from exo.ops.placing import find_model

    return (await find_model(client, name)).id
