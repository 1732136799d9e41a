"""`exo models`: what can be run, and what is on the disk."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exo.ops.cli.options import DataDir, Json, Url, ask_node
from exo.ops.errors import UsageError
from exo.ops.terminal import ProgressLine, print_table, say, show_bytes, tell

if TYPE_CHECKING:
    from exo.ops.client import NodeClient
    from exo.ops.placing import ModelEntry

COLUMNS = ("MODEL", "STATUS", "SIZE", "CONTEXT", "QUANTIZATION", "SOURCE")

Name = Annotated[str, typer.Argument(metavar="MODEL", help="The model's id or alias.", show_default=False)]


def list_models(
    url: Url = None,
    data_dir: DataDir = None,
    *,
    downloaded: Annotated[bool, typer.Option("--downloaded", help="Only those on a disk of the cluster.")] = False,
    json: Json = False,
) -> None:
    """List the models that can be named: running, loading, downloaded or just known."""
    entries = ask_node(url, data_dir, lambda client: _list(client, downloaded=downloaded))
    if json:
        import msgspec

        say(msgspec.json.format(msgspec.json.encode(entries), indent=2).decode())
        return
    print_table(COLUMNS, [_show(entry) for entry in entries])


async def _list(client: "NodeClient", *, downloaded: bool) -> "list[ModelEntry]":
    from exo.ops.placing import list_models as ask

    return await ask(client, downloaded=downloaded)


def _show(entry: "ModelEntry") -> list[str]:
    size = show_bytes(entry.storage_size_megabytes * 1e6) if entry.storage_size_megabytes else "-"
    context = str(entry.context_length or "-")
    return [entry.id, entry.status, size, context, entry.quantization or "-", entry.source or "-"]


def add(name: Name, url: Url = None, data_dir: DataDir = None) -> None:
    """Fetch a model to this node. `starter` is a small real one that needs no account."""
    entry = ask_node(url, data_dir, lambda client: _add(client, "/models/add", {"model_id": name}))
    _say_added(entry)


def import_file(
    file: Annotated[Path, typer.Argument(help="A GGUF file on the node's machine.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="What to call the model; without it, the file's name.")] = None,
    url: Url = None,
    data_dir: DataDir = None,
) -> None:
    """Make a model of a GGUF file: llama family, F32, F16, Q4_0, Q4_1 or Q8_0."""
    if url is None and not file.is_file():
        raise UsageError(f"{file} is no file", remedy="give the path of a .gguf file")
    body = {"path": str(file.absolute()), "model_id": name}
    _say_added(ask_node(url, data_dir, lambda client: _add(client, "/models/import", body)))


async def _add(client: "NodeClient", path: str, body: dict[str, str | None]) -> "ModelEntry":
    from exo.ops.placing import add_model

    with ProgressLine() as line:
        return await add_model(client, path, body, show=line.show)


def _say_added(entry: "ModelEntry") -> None:
    say(entry.id)
    tell(f"Run it with `exo place {entry.id}`, or ask it at once: `exo run {entry.id}`")


def remove(name: Name, url: Url = None, data_dir: DataDir = None) -> None:
    """Delete a model's files from this node."""
    say(ask_node(url, data_dir, lambda client: _remove(client, name)))


async def _remove(client: "NodeClient", name: str) -> str:
    from exo.ops.api_path import fill_model_path
    from exo.ops.placing import find_model

    entry = await find_model(client, name)
    await client.delete(fill_model_path("/models/{}", entry.id), dict)
    return entry.id
