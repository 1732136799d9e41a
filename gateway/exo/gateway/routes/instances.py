"""Instances: placed, listed, looked at, removed. Every change answers with the master's decision."""

from typing import Any

import msgspec
from litestar import Request, delete, get, post
from litestar.params import FromPath
from litestar.types import ASGIApp

from exo.gateway.availability import require_known
from exo.gateway.bodies import decode_body, invalid
from exo.gateway.commands import now_ms
from exo.gateway.errors import GatewayError
from exo.gateway.gateway import Here
from exo.gateway.responses import json_response
from exo.gateway.wire.casing import to_snake
from exo.gateway.wire.instances import WireInstance, instance_from_wire, instance_to_wire
from exo.gateway.wire.models import WireCard, card_to_wire
from exo.streams.codes import Code
from exo.streams.commands import CreateInstance, DeleteInstance, PlaceInstance
from exo.streams.ids import InstanceId, new_command_id, new_instance_id
from exo.streams.instances import Instance, Sharding, Transport
from exo.streams.state import State
from exo.streams.views import online_workers


class PlaceBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /place_instance`; the last two keys are ours."""

    model_id: str
    sharding: Sharding = "Pipeline"
    instance_meta: Transport = "MlxRing"
    min_nodes: int = 1
    context_length: int = 0
    only_if_absent: bool = False


class CreateBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /instance`: an instance as `/instance/previews` gives it, by its class name."""

    instance: dict[str, dict[str, Any]]


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """The decision is known: upstream's keys, then the instance itself."""

    message: str = "Command received."
    command_id: str
    instance_id: str
    model_card: WireCard | None = None
    instance: dict[str, WireInstance] | None = None


@get("/instance", summary="All instances")
async def list_instances(gateway: Here) -> ASGIApp:
    """Placed instances in upstream's shape, oldest first."""
    return json_response([instance_to_wire(instance) for instance in gateway.state.instances.values()])


@get("/instance/{instance_id:str}", summary="One instance")
async def get_instance(gateway: Here, instance_id: FromPath[str]) -> ASGIApp:
    """In upstream's shape."""
    return json_response(instance_to_wire(require_instance(gateway.state, instance_id)))


@post("/instance", status_code=200, summary="Place a previewed instance")
async def create_instance(request: Request[Any, Any, Any], gateway: Here) -> ASGIApp:
    """Takes an instance as a preview gave it; the master checks that it can stand."""
    body = decode_body(CreateBody, await request.body())
    instance = instance_from_wire(body.instance)
    command = CreateInstance(command_id=new_command_id(), issued_at=now_ms(), instance=instance)
    await gateway.commander.execute(command)
    return json_response(_acknowledge(gateway.state, command.command_id, instance.id, fallback=instance))


@post("/place_instance", status_code=200, summary="Place a model")
async def place_instance(request: Request[Any, Any, Any], gateway: Here) -> ASGIApp:
    """Chooses nodes for a model and answers with the placement, or with the reason why there is none."""
    raw = decode_body(dict[str, Any], await request.body())
    body = _read_place_body(raw)
    card = require_known(gateway.state, gateway.catalog, body.model_id)
    command = PlaceInstance(
        command_id=new_command_id(),
        issued_at=now_ms(),
        instance=new_instance_id(),
        model=card.model_id,
        sharding=body.sharding,
        transport=body.instance_meta,
        min_nodes=body.min_nodes,
        context_length=body.context_length or gateway.settings.context_length,
        only_if_absent=body.only_if_absent,
    )
    receipt = await gateway.commander.execute(command)
    found = gateway.state.instances.get(InstanceId(receipt.subject_id))
    if found is not None and found.id != command.instance:
        _require_fit(found, body, nodes=len(online_workers(gateway.state)))
    return json_response(_acknowledge(gateway.state, command.command_id, InstanceId(receipt.subject_id)))


def _read_place_body(raw: dict[str, Any]) -> PlaceBody:
    """Both spellings of keys are read, and nulls leave the default."""
    given = {key: value for key, value in to_snake(raw).items() if value is not None}
    body = decode_body(PlaceBody, msgspec.json.encode(given))
    if body.min_nodes < 1:
        raise invalid("min_nodes must be at least 1.", "min_nodes")
    if body.context_length < 0:
        raise invalid("context_length must not be negative.", "context_length")
    return body


def _require_fit(found: Instance, asked: PlaceBody, *, nodes: int) -> None:
    """Refuse to pass off an instance that runs already as the one that was asked for."""
    if asked.min_nodes > max(nodes, len(found.shards)):
        reason = f"{asked.min_nodes} nodes are asked for, but only {nodes} that can run models are online."
        raise GatewayError(Code.UNPLACEABLE, reason)
    wrong = ""
    if found.sharding != asked.sharding:
        wrong = f"as {found.sharding}"
    elif len(found.shards) < asked.min_nodes:
        wrong = f"on {len(found.shards)} of {asked.min_nodes} nodes"
    elif found.context_length < asked.context_length:
        wrong = f"with a context of {found.context_length} tokens"
    if wrong:
        model = found.model.model_id
        hint = f"Stop it first with `exo stop {model}`, or place one more with `exo place {model} --another`."
        raise GatewayError(Code.UNPLACEABLE, f"{model} runs already {wrong}. {hint}")


def _acknowledge(
    state: State, command_id: str, instance_id: InstanceId, *, fallback: Instance | None = None
) -> Acknowledgement:
    instance = state.instances.get(instance_id, fallback)
    return Acknowledgement(
        command_id=command_id,
        instance_id=instance_id,
        model_card=card_to_wire(instance.model) if instance is not None else None,
        instance=instance_to_wire(instance) if instance is not None else None,
    )


@delete("/instance/{instance_id:str}", status_code=200, summary="Remove an instance")
async def delete_instance(gateway: Here, instance_id: FromPath[str]) -> Acknowledgement:
    """Its running requests end with an error that says so."""
    instance = require_instance(gateway.state, instance_id)
    command = DeleteInstance(command_id=new_command_id(), issued_at=now_ms(), instance=instance.id)
    await gateway.commander.execute(command)
    return Acknowledgement(command_id=command.command_id, instance_id=instance.id)


def require_instance(state: State, instance_id: str) -> Instance:
    """Give a placed instance, or raise `instance_not_found`."""
    instance = state.instances.get(InstanceId(instance_id))
    if instance is None:
        raise GatewayError(Code.INSTANCE_NOT_FOUND, "Instance not found")
    return instance
