"""Waits for a model to be ready to answer, as server-sent events."""

from collections.abc import AsyncGenerator
from time import monotonic
from typing import Any

import msgspec
from litestar import get
from litestar.params import FromQuery
from litestar.types import ASGIApp

from exo.gateway.availability import describe_progress, find_instance_error, require_known
from exo.gateway.bodies import invalid
from exo.gateway.gateway import Gateway, Here
from exo.gateway.routes.instances import require_instance
from exo.gateway.sse import encode_event
from exo.gateway.wire.casing import to_snake
from exo.gateway.wire.instances import instance_to_wire
from exo.streams.ids import InstanceId, ModelId
from exo.streams.instances import Instance
from exo.streams.state import State
from exo.streams.views import instances_of, is_ready


@get("/instance/await", summary="Wait until a model is ready")
async def await_instance(
    gateway: Here,
    model_id: FromQuery[str] = "",
    instance_id: FromQuery[str] = "",
    timeout_seconds: FromQuery[float] = 0,
) -> ASGIApp:
    """One event: `ready` once every rank is, `timeout`, or `error` when the instance is gone. 0 waits for ever."""
    if not timeout_seconds >= 0:  # also true of what is no number
        raise invalid("timeout_seconds must be a number of at least 0; 0 waits for ever.", "timeout_seconds")
    if instance_id:
        awaited: set[InstanceId] = {require_instance(gateway.state, instance_id).id}
        model = None
    elif model_id:
        model = require_known(gateway.state, gateway.catalog, model_id).model_id
        awaited = set()
    else:
        raise invalid("Name the model with model_id, or one instance of it with instance_id.", "model_id")
    source = _await(gateway, model, awaited, timeout=timeout_seconds or None)
    return gateway.event_streams.open(source)


async def _await(
    gateway: Gateway, model: ModelId | None, awaited: set[InstanceId], *, timeout: float | None
) -> AsyncGenerator[bytes, None]:
    """Give the one event. With a model, its instances are followed as they come."""

    def outcome(state: State) -> Instance | InstanceId | None:
        if model is not None:
            awaited.update(instance.id for instance in instances_of(state, model))
        present = [state.instances[known] for known in awaited if known in state.instances]
        ready = next((instance for instance in present if is_ready(state, instance.id)), None)
        gone = next(iter(awaited)) if awaited and not present else None
        return ready or gone

    started = monotonic()
    try:
        state = await gateway.states.wait(lambda state: outcome(state) is not None, timeout=timeout)
    except TimeoutError:
        yield _event({"type": "timeout", "message": _describe_timeout(gateway.state, awaited, monotonic() - started)})
        return
    found = outcome(state)
    if isinstance(found, Instance):
        instance = to_snake(msgspec.to_builtins(instance_to_wire(found)))
        yield _event({"type": "ready", "instance": instance})
    elif found is not None:
        error = find_instance_error(state, found)
        yield _event({"type": "error", "code": error.code, "message": error.message, "instance_id": found})


def _describe_timeout(state: State, awaited: set[InstanceId], waited: float) -> str:
    present = [known for known in awaited if known in state.instances]
    if not present:
        return "No instance found for model ID"
    return f"Not ready after {waited:.0f} s: {describe_progress(state, present[0])}"


def _event(value: dict[str, Any]) -> bytes:
    return encode_event(msgspec.json.encode(value))
