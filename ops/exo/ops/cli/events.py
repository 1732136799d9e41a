"""`exo events`: the event log, as it stands or as it grows."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from exo.ops.cli.options import DataDir, Json, Url, ask_node
from exo.ops.terminal import paint, say

if TYPE_CHECKING:
    from exo.ops.client import NodeClient

_LONGEST = 160


class EventLine(msgspec.Struct, frozen=True):
    """What is shown of one event; `at` is Unix time in ms."""

    index: str
    at: int
    event: dict[str, Any]


def events(
    after: Annotated[
        str | None, typer.Option(help="Begin behind this event: its number, or its id `session.number`.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Most events, without --follow.")] = 1000,
    url: Url = None,
    data_dir: DataDir = None,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as events happen.")] = False,
    json: Json = False,
) -> None:
    """Print what was decided and what happened; one JSON object per line in a pipe or with --json."""
    params = {"after": after} if after else {}
    as_json = json or not sys.stdout.isatty()
    if follow:
        ask_node(url, data_dir, lambda client: _follow(client, params, as_json=as_json))
        return
    raw = ask_node(
        url, data_dir, lambda client: client.get("/events", list[msgspec.Raw], params={**params, "limit": limit})
    )
    for event in raw:
        _show(bytes(event), as_json=as_json)


async def _follow(client: "NodeClient", params: dict[str, str], *, as_json: bool) -> None:
    async with client.stream("GET", "/events", params=params) as stream:
        async for event in stream:
            _show(event.data.encode(), as_json=as_json)


def _show(data: bytes, *, as_json: bool) -> None:
    if as_json:
        say(data.decode())
        return
    line = msgspec.json.decode(data, type=EventLine)
    moment = time.strftime("%H:%M:%S", time.localtime(line.at / 1000))
    details = {key: value for key, value in line.event.items() if key != "type"}
    text = msgspec.json.encode(details).decode()
    shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    say(f"{paint(line.index, 'dim')} {moment} {paint(str(line.event.get('type', '?')), 'bold')} {shown}")
