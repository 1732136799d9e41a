"""Bringing a model up through the API: add its files when they are absent, place it, wait until it is ready.

Used by `exo place`, `exo run` and, for the models of its settings, by `exo up`.
"""

import asyncio
from typing import Any, Protocol

import msgspec

from exo.ops.api_path import fill_model_path
from exo.ops.client import NodeClient
from exo.ops.errors import CommandError
from exo.ops.terminal import show_bytes
from exo.streams.ids import RunnerId
from exo.streams.instances import Loading, RunnerRecord

POLL = 0.25
"""Seconds between two looks at how far a model is."""


class Show(Protocol):
    """Somebody who is told how far things are; `ProgressLine.show` is one."""

    def __call__(self, what: str, done: int = 0, total: int = 0, *, detail: str = "") -> None: ...


class Placed(msgspec.Struct, frozen=True):
    """The answer to a placement."""

    instance_id: str
    model_card: "_Card"


class _Card(msgspec.Struct, frozen=True, rename="camel"):
    model_id: str


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the list, as far as commands look at it. `status` is running, loading, downloaded or known."""

    id: str
    name: str = ""
    status: str = ""
    storage_size_megabytes: int = 0
    context_length: int = 0
    quantization: str = ""
    source: str = ""


class _Models(msgspec.Struct, frozen=True):
    data: list[ModelEntry]


class _Awaited(msgspec.Struct, frozen=True):
    type: str
    code: str = ""
    message: str = ""


class _ImportEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`progress` holds the fields of `ImportGauge`, `complete` the model, an error its code."""

    type: str = ""
    stage: str = ""
    done: int = 0
    total: int = 0
    unit: str = ""
    model: Any = None
    error: "_Detail | None" = None


class _Detail(msgspec.Struct, frozen=True):
    message: str
    code: str | None = None


async def ensure_ready(client: NodeClient, name: str, *, show: Show) -> str:
    """Have one instance of a model serve; gives the model's id. Fetches the files of one that can be fetched."""
    body = {"model_id": name, "only_if_absent": True}
    try:
        placed = await place(client, body)
    except CommandError as error:
        if error.code != "model_files_missing":
            raise
        await add_missing(client, name, show=show, cause=error)
        placed = await place(client, body)
    await wait_until_ready(client, placed, show=show)
    return placed.model_card.model_id


async def place(client: NodeClient, body: dict[str, Any]) -> Placed:
    """Ask for a placement; its refusal is raised with the master's reason."""
    return await client.post("/place_instance", body, Placed)


async def add_missing(client: NodeClient, name: str, *, show: Show, cause: CommandError) -> None:
    """Add a model by its name; one that this version cannot fetch keeps the first error, which says more."""
    try:
        await add_model(client, "/models/add", {"model_id": name}, show=show)
    except CommandError as error:
        if error.code == "not_built":
            raise cause from error
        raise


async def add_model(client: NodeClient, path: str, body: dict[str, Any], *, show: Show) -> ModelEntry:
    """Fetch or import a model, telling how far it is; gives its entry."""
    async with client.stream("POST", path, body=body) as events:
        async for raw in events:
            event = msgspec.json.decode(raw.data, type=_ImportEvent)
            if event.error is not None:
                raise CommandError(event.error.message.rstrip("."), code=event.error.code or "")
            if event.type == "complete":
                return msgspec.convert(event.model, ModelEntry)
            if event.type == "progress" and event.stage not in {"complete", "failed"}:
                show(f"{event.stage} {event.model}", event.done, event.total, detail=_show_amount(event))
    raise CommandError("the node stopped before the model was complete", remedy="`exo logs` says why")


def _show_amount(event: _ImportEvent) -> str:
    if event.unit != "bytes" or not event.done:
        return ""
    total = f" of {show_bytes(event.total)}" if event.total else ""
    return f"{show_bytes(event.done)}{total}"


async def list_models(client: NodeClient, *, downloaded: bool = False) -> list[ModelEntry]:
    """Give every model that can be named, or only those on a disk of the cluster."""
    params = {"status": "downloaded"} if downloaded else {}
    return (await client.get("/v1/models", _Models, params=params)).data


async def find_model(client: NodeClient, name: str) -> ModelEntry:
    """Give a model by its id or alias; an unknown one is raised with what may have been meant."""
    return await client.get(fill_model_path("/v1/models/{}", name), ModelEntry)


async def wait_until_ready(client: NodeClient, placed: Placed, *, show: Show) -> None:
    """Wait for every rank, telling how far the slowest is; `CommandError` with the reason when the instance goes."""
    watching = asyncio.create_task(_watch(client, placed, show))
    try:
        params = {"instance_id": placed.instance_id, "timeout_seconds": 0}
        async with client.stream("GET", "/instance/await", params=params) as events:
            async for raw in events:
                event = msgspec.json.decode(raw.data, type=_Awaited)
                if event.type == "ready":
                    return
                raise CommandError(event.message.rstrip("."), code=event.code)
        raise CommandError("the node stopped before the model was ready", remedy="`exo logs` says why")
    finally:
        watching.cancel()


async def _watch(client: NodeClient, placed: Placed, show: Show) -> None:
    model = placed.model_card.model_id
    while True:
        runners = await client.get("/state/runners", dict[RunnerId, RunnerRecord])
        mine = [runner for runner in runners.values() if runner.instance == placed.instance_id]
        for runner in mine:
            match runner.status:
                case Loading(layers_loaded=done, total_layers=total):
                    show(f"loading {model}", done, total, detail=f"layer {done} of {total}")
                case status:
                    show(f"{msgspec.to_builtins(status)['type'].replace('_', ' ')} {model}")
        await asyncio.sleep(POLL)
