"""Whether this node lives, whether it can serve, and its numbers."""

import msgspec
from litestar import get
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from exo.gateway.gateway import Gateway, Here
from exo.gateway.responses import json_response


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`reasons` says what is still missing, in words."""

    status: str
    node_id: str
    version: str
    reasons: tuple[str, ...] = ()


@get("/health", summary="Whether this process lives")
async def get_health(gateway: Here) -> Health:
    """200 as long as requests are answered at all."""
    return Health(status="ok", node_id=gateway.node.id, version=gateway.node.version)


@get("/ready", summary="Whether this node can serve")
async def get_ready(gateway: Here) -> ASGIApp:
    """503 with reasons until the broker is reached, State is current and a master is known."""
    reasons = await find_missing(gateway)
    status = "starting" if reasons else "ready"
    health = Health(status=status, node_id=gateway.node.id, version=gateway.node.version, reasons=reasons)
    return json_response(health, status=503 if reasons else 200)


async def find_missing(gateway: Gateway) -> tuple[str, ...]:
    """Say what keeps this node from serving."""
    missing: list[str] = []
    if not gateway.bus.connected:
        missing.append("the message broker is not connected")
    try:
        await gateway.states.caught_up(timeout=0)
    except TimeoutError:
        missing.append("the event log has not been read to its end yet")
    if not gateway.state.master:
        missing.append("no master is known yet")
    return tuple(missing)


@get("/metrics", summary="Numbers for Prometheus")
async def get_metrics(gateway: Here) -> ASGIApp:
    """In the text format that Prometheus scrapes."""
    return ASGIResponse(body=gateway.metrics.render(), media_type="text/plain; version=0.0.4")
