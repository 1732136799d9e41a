"""Models are fetched, imported and removed on this node: requests to the node itself, not to the master."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import PurePath
from typing import Any

import msgspec
from litestar import Request, delete, post
from litestar.params import FromPath
from litestar.types import ASGIApp

from exo.broker.bus import Delivery
from exo.broker.errors import BusUnavailableError, NoResponderError
from exo.gateway.bodies import decode_body, invalid
from exo.gateway.commands import now_ms
from exo.gateway.errors import GatewayError, render_openai
from exo.gateway.gateway import Gateway, Here
from exo.gateway.responses import json_response
from exo.gateway.routes.models import describe_model
from exo.gateway.sse import encode_event
from exo.gateway.wire.models import ModelEntry
from exo.streams import subjects
from exo.streams.codec import CodecError, decode_as, decode_sample, encode
from exo.streams.codes import Code
from exo.streams.commands import DeleteModelCard
from exo.streams.control import IMPORT_MODEL, REMOVE_MODEL, ImportModel, ModelReply, RemoveModel
from exo.streams.ids import ModelId, new_command_id
from exo.streams.telemetry import ImportGauge

STARTER = "starter"
_SHOWS_UP_WITHIN = 10.0
_GAUGE = "import"


class AddBody(msgspec.Struct, frozen=True, kw_only=True):
    """`starter`, or the path of a GGUF file on this node."""

    model_id: str


class ImportBody(msgspec.Struct, frozen=True, kw_only=True):
    """A GGUF file on this node; `model_id` names the result, null takes the name from the file."""

    path: str
    model_id: str | None = None


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed."""

    message: str
    model_id: str


@post("/models/add", status_code=200, summary="Add a model")
async def add_model(request: Request[Any, Any, Any], gateway: Here) -> ASGIApp:
    """Fetches the starter model, or imports a local file; with `Accept: text/event-stream` it tells its progress."""
    body = decode_body(AddBody, await request.body())
    if _is_starter(gateway, body.model_id):
        return await _import(request, gateway, ImportModel(starter=True))
    if PurePath(body.model_id).is_absolute():
        return await _import(request, gateway, ImportModel(path=body.model_id))
    raise GatewayError(
        Code.NOT_BUILT,
        "This version cannot fetch models from a hub yet. Add `starter`, or a GGUF file by its absolute path.",
        param="model_id",
    )


def _is_starter(gateway: Gateway, name: str) -> bool:
    """Whether a name is the starter model's alias or its id."""
    if name == STARTER:
        return True
    named, starter = (gateway.catalog.find_card(one, gateway.state) for one in (name, STARTER))
    return named is not None and starter is not None and named.model_id == starter.model_id


@post("/models/import", status_code=200, summary="Import a GGUF file")
async def import_model(request: Request[Any, Any, Any], gateway: Here) -> ASGIApp:
    """Makes a model directory of a file on this node; with `Accept: text/event-stream` it tells its progress."""
    body = decode_body(ImportBody, await request.body())
    if not PurePath(body.path).is_absolute():
        raise invalid("path must be absolute: the node does not know your working directory.", "path")
    return await _import(request, gateway, ImportModel(path=body.path, model_id=body.model_id or ""))


@delete("/models/custom/{model_id:path}", status_code=200, summary="Forget a custom model")
async def delete_custom_model(gateway: Here, model_id: FromPath[str]) -> Removed:
    """Removes the card on every node; files stay."""
    model = ModelId(model_id.lstrip("/"))
    if model not in gateway.state.cards:
        raise GatewayError(Code.MODEL_NOT_FOUND, "Custom model card not found", param="model_id")
    await gateway.commander.execute(DeleteModelCard(command_id=new_command_id(), issued_at=now_ms(), model=model))
    return Removed(message="Model card deleted", model_id=model)


@delete("/models/{model_id:path}", status_code=200, summary="Delete a model's files")
async def delete_model(gateway: Here, model_id: FromPath[str]) -> Removed:
    """Deletes them from this node."""
    model = ModelId(model_id.lstrip("/"))
    reply = await _ask_node(gateway, REMOVE_MODEL, encode(RemoveModel(model=model)))
    return Removed(message="Model files deleted", model_id=reply.model or model)


async def _import(request: Request[Any, Any, Any], gateway: Gateway, order: ImportModel) -> ASGIApp:
    if "text/event-stream" in request.headers.get("accept", ""):
        return gateway.event_streams.open(_follow_import(gateway, order))
    return json_response(await _finish_import(gateway, order))


async def _finish_import(gateway: Gateway, order: ImportModel) -> ModelEntry:
    """Let the node import and give the new model's entry once State knows it."""
    reply = await _ask_node(gateway, IMPORT_MODEL, encode(order))
    try:
        state = await gateway.states.wait(
            lambda state: gateway.catalog.find_card(reply.model, state) is not None, timeout=_SHOWS_UP_WITHIN
        )
    except TimeoutError as error:
        message = f"The model {reply.model} was imported, but its node has not reported it yet."
        raise GatewayError(Code.MASTER_UNAVAILABLE, message) from error
    card = gateway.catalog.find_card(reply.model, state)
    assert card is not None
    return describe_model(state, card)


async def _ask_node(gateway: Gateway, verb: str, payload: bytes) -> ModelReply:
    subject = subjects.control(gateway.node.id, verb)
    try:
        answer = await gateway.bus.request(subject, payload, timeout=gateway.settings.import_timeout)
    except NoResponderError as error:
        raise GatewayError(Code.NOT_FOUND, "This node runs without a worker, so it keeps no models.") from error
    except BusUnavailableError as error:
        raise GatewayError(Code.BROKER_UNAVAILABLE, f"The node did not answer: {error}") from error
    try:
        reply = decode_as(ModelReply, answer)
    except CodecError as error:
        raise GatewayError(Code.INTERNAL, "The node gave an answer that cannot be read.") from error
    if reply.code:
        raise GatewayError(reply.code, reply.message)
    return reply


async def _follow_import(gateway: Gateway, order: ImportModel) -> AsyncGenerator[bytes, None]:
    """Tell progress as the node publishes it, then the model's entry or the error."""
    gauges: asyncio.Queue[ImportGauge | None] = asyncio.Queue()

    def note(delivery: Delivery) -> None:
        gauge = decode_sample(delivery.payload).gauge
        if isinstance(gauge, ImportGauge):
            gauges.put_nowait(gauge)

    subscription = await gateway.bus.subscribe(subjects.telemetry(gateway.node.id, _GAUGE), note)
    work = asyncio.ensure_future(_finish_import(gateway, order))
    work.add_done_callback(lambda _: gauges.put_nowait(None))
    try:
        while (gauge := await gauges.get()) is not None:
            yield _event({**msgspec.to_builtins(gauge), "type": "progress"})
        try:
            yield _event({"type": "complete", "model": await work})
        except GatewayError as error:
            yield encode_event(render_openai(error))
    finally:
        work.cancel()
        await subscription.stop()


def _event(value: dict[str, Any]) -> bytes:
    return encode_event(msgspec.json.encode(value))
