"""State as JSON, whole or by path, with the gauges beside it under `telemetry`."""

from time import time_ns
from typing import Any, cast
from urllib.parse import unquote

import msgspec
from litestar import Request, get
from litestar.types import ASGIApp

from exo.gateway.errors import GatewayError
from exo.gateway.gateway import Gateway, Here
from exo.gateway.responses import json_response
from exo.gateway.wire.topology import AgedSample, Topology, read_topology
from exo.streams.codec import encode
from exo.streams.codes import Code
from exo.streams.state import State
from exo.streams.telemetry import is_stale

_TELEMETRY = "telemetry"


@get("/state", summary="State of the cluster")
async def get_state(gateway: Here) -> ASGIApp:
    """Everything the cluster agrees on, as `exo.streams.state.State`, and the newest gauges with their ages."""
    state = gateway.state
    fields: dict[str, Any] = {name: getattr(state, name) for name in State.__struct_fields__}
    return json_response({**fields, _TELEMETRY: read_telemetry(gateway)})


@get("/state/{path:path}", summary="A part of State")
async def get_state_part(request: Request[Any, Any, Any], gateway: Here) -> ASGIApp:
    """Walks keys and list indices; a `/` inside a key is written `%2F`."""
    raw = request.scope["raw_path"].decode("latin-1").partition("/state/")[2]
    parts = [unquote(part) for part in raw.split("/") if part]
    value: Any = {name: name for name in (*State.__struct_fields__, _TELEMETRY)}
    for number, part in enumerate(parts):
        value = _step(value, part, parts)
        if number == 0:
            value = read_telemetry(gateway) if part == _TELEMETRY else getattr(gateway.state, part)
            value = msgspec.json.decode(encode(value))
    return json_response(value)


@get("/state/topology", summary="Nodes and links")
async def get_topology(gateway: Here) -> Topology:
    """The nodes, what connects them as each measured it, and what is wrong with either."""
    gauges = gateway.gauges
    return read_topology(
        gateway.state,
        {(one.node, one.name): AgedSample(one.sample, gauges.age(one)) for one in gauges.samples()},
        hub=gateway.cluster.hub,
        now=time_ns() // 1_000_000,
    )


def _step(value: Any, part: str, parts: list[str]) -> Any:
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        if part in mapping:
            return mapping[part]
    elif isinstance(value, list) and part.isascii() and part.isdigit():
        entries = cast("list[Any]", value)
        if int(part) < len(entries):
            return entries[int(part)]
    raise GatewayError(Code.NOT_FOUND, f"unable to find path '{'.'.join(parts)}' in state json")


def read_telemetry(gateway: Gateway) -> dict[str, dict[str, dict[str, Any]]]:
    """Give the newest sample of each gauge by node and gauge; `age` is in seconds since it came here.

    A `stale` one tells about the past only: what measures it has stopped.
    """
    telemetry: dict[str, dict[str, dict[str, Any]]] = {}
    for reading in gateway.gauges.samples():
        sample, age = reading.sample, gateway.gauges.age(reading)
        telemetry.setdefault(reading.node, {})[reading.name] = {
            "taken_at": sample.taken_at,
            "interval": sample.interval,
            "age": round(age, 3),
            "stale": is_stale(age, interval=sample.interval),
            "gauge": sample.gauge,
        }
    return telemetry
