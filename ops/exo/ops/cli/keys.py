"""`exo keys`: API keys for people and programs that reach the API over the network."""

import time
from typing import Annotated, Any

import msgspec
import typer

from exo.ops.api_path import fill_path
from exo.ops.cli.options import DataDir, Json, Url, ask_node
from exo.ops.errors import UsageError
from exo.ops.terminal import print_table, say, show_duration, tell
from exo.streams.keys import SCOPES, Scope, find_name_fault

COLUMNS = ("NAME", "SCOPES", "AGE", "ID")


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    scopes: tuple[Scope, ...]
    created: int


class _NewKey(_Key, frozen=True, kw_only=True):
    key: str


class _Keys(msgspec.Struct, frozen=True):
    data: tuple[_Key, ...]


def add(
    name: Annotated[str, typer.Argument(help="Who or what it is for.", show_default=False)],
    *,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="infer asks models (the default), read looks, admin does everything; repeatable."),
    ] = None,
    json: Json = False,
    url: Url = None,
    data_dir: DataDir = None,
) -> None:
    """Make an API key. It is shown now and never again: the cluster keeps only its hash."""
    if fault := find_name_fault(name):
        raise UsageError(f"the name {fault}")
    if unknown := [one for one in scope or () if one not in SCOPES]:
        raise UsageError(f"{unknown[0]!r} is no scope", remedy=f"choose of {', '.join(SCOPES)}")
    body = {"name": name, "scopes": scope or ["infer"]}
    made = ask_node(url, data_dir, lambda client: client.post("/v1/keys", body, _NewKey))
    if json:
        _print_json(made)
        return
    tell(f"Key {made.id} for {made.name} ({', '.join(made.scopes)}). Keep it now: it is not shown again.")
    say(made.key)


def list_keys(*, json: Json = False, url: Url = None, data_dir: DataDir = None) -> None:
    """List the API keys that are admitted."""
    keys = ask_node(url, data_dir, lambda client: client.get("/v1/keys", _Keys)).data
    if json:
        _print_json(keys)
        return
    now = time.time()
    print_table(COLUMNS, [[key.name, ",".join(key.scopes), show_duration(now - key.created), key.id] for key in keys])
    if not keys:
        tell("There is no key; `exo keys add NAME` makes one.")


def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="`exo keys list` shows it.", show_default=False)],
    *,
    json: Json = False,
    url: Url = None,
    data_dir: DataDir = None,
) -> None:
    """Refuse a key from now on, on every node."""
    path = fill_path("/v1/keys/{}", key, what="id of a key")
    revoked: dict[str, Any] = ask_node(url, data_dir, lambda client: client.delete(path, dict[str, Any]))
    if json:
        _print_json(revoked)
        return
    say(f"{revoked['id']} is revoked")


def _print_json(value: Any) -> None:
    say(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
