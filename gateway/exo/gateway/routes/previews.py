"""Where a model could go: all ways at once, or the one that a placement would take."""

from typing import Annotated

from litestar import get
from litestar.params import FromQuery, QueryParameter
from litestar.types import ASGIApp
from msgspec.structs import replace

from exo.gateway.availability import require_known
from exo.gateway.errors import GatewayError
from exo.gateway.gateway import Here
from exo.gateway.responses import json_response
from exo.gateway.wire.instances import Preview, Previews, instance_to_wire
from exo.streams.codes import Code
from exo.streams.instances import Sharding, Transport
from exo.streams.models import ModelCard
from exo.streams.placements import Preview as PlacementPreview
from exo.streams.placements import Unplaceable

NodeIds = Annotated[list[str] | None, QueryParameter(description="Nodes that must take part")]
MinNodes = Annotated[int, QueryParameter(ge=1, description="Fewest nodes to spread over")]


@get("/instance/previews", summary="Where a model could go")
async def list_previews(
    gateway: Here, model_id: FromQuery[str], node_ids: NodeIds = None, min_nodes: MinNodes = 1
) -> Previews:
    """One entry per sharding and transport; `error` is null where it is possible."""
    card = require_known(gateway.state, gateway.catalog, model_id)
    wanted = frozenset(node_ids or ())
    found = gateway.placer.previews(card, min_nodes=min_nodes)
    return Previews([_render(card, _hold_to(preview, wanted)) for preview in found])


@get("/instance/placement", summary="The placement of a model")
async def get_placement(
    gateway: Here,
    model_id: FromQuery[str],
    sharding: FromQuery[Sharding] = "Pipeline",
    instance_meta: FromQuery[Transport] = "MlxRing",
    min_nodes: MinNodes = 1,
) -> ASGIApp:
    """The instance that `POST /place_instance` with the same choices would make, or 400 with the reason."""
    card = require_known(gateway.state, gateway.catalog, model_id)
    for preview in gateway.placer.previews(card, min_nodes=min_nodes):
        if (preview.sharding, preview.transport) == (sharding, instance_meta):
            if preview.instance is not None:
                return json_response(instance_to_wire(preview.instance))
            if preview.unplaceable is not None:
                raise GatewayError(preview.unplaceable.code, preview.unplaceable.reason)
    raise GatewayError(Code.UNPLACEABLE, f"{sharding} over {instance_meta} is not possible here.")


def _hold_to(preview: PlacementPreview, wanted: frozenset[str]) -> PlacementPreview:
    """Refuse a way that leaves out a node which must take part; the entry stays, with its reason."""
    if preview.instance is None:
        return preview
    left_out = sorted(wanted - {shard.node for shard in preview.instance.shards})
    if not left_out:
        return preview
    reason = f"node {left_out[0]} must take part, but would not"
    return replace(preview, instance=None, unplaceable=Unplaceable(code=Code.UNPLACEABLE, reason=reason))


def _render(card: ModelCard, preview: PlacementPreview) -> Preview:
    refused = preview.unplaceable
    return Preview(
        model_id=card.model_id,
        sharding=preview.sharding,
        instance_meta=preview.transport,
        instance=instance_to_wire(preview.instance) if preview.instance is not None else None,
        memory_delta_by_node={**preview.memory_by_node} if preview.instance is not None else None,
        error=refused.reason if refused is not None else None,
        error_code=refused.code if refused is not None else None,
    )
