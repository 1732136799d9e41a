"""Instances as upstream writes them: tagged by class name, camelCase, shards by runner.

What `GET /instance/previews` gives is taken back unchanged by `POST /instance`.
"""

from typing import Any, Final, TypeVar

import msgspec

from exo.gateway.bodies import convert_body, invalid
from exo.gateway.wire.casing import to_camel
from exo.gateway.wire.models import WireCard, card_from_wire, card_to_wire
from exo.streams.ids import InstanceId, NodeId, RunnerId
from exo.streams.instances import Instance, Shard, Sharding, Transport

Tagged = TypeVar("Tagged")
Kind = TypeVar("Kind")

_INSTANCE_OF: Final[dict[Transport, str]] = {"MlxRing": "MlxRingInstance", "MlxJaccl": "MlxJacclInstance"}
_SHARD_OF: Final[dict[Sharding, str]] = {"Pipeline": "PipelineShardMetadata", "Tensor": "TensorShardMetadata"}
_TRANSPORTS: Final[dict[str, Transport]] = {tag: transport for transport, tag in _INSTANCE_OF.items()}
_SHARDINGS: Final[dict[str, Sharding]] = {tag: sharding for sharding, tag in _SHARD_OF.items()}


class WireShard(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One shard: upstream's keys, then ours."""

    model_card: WireCard
    device_rank: int
    world_size: int
    start_layer: int
    end_layer: int
    n_layers: int
    immediate_exception: bool = False
    should_timeout: None = None
    memory_bytes: int = 0


class WireAssignments(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which runner holds which shard, and where it runs."""

    model_id: str
    runner_to_shard: dict[str, dict[str, WireShard]]
    node_to_runner: dict[str, str]


class WireInstance(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One instance; hosts and devices are filled by the compute groups of several nodes."""

    instance_id: str
    shard_assignments: WireAssignments
    hosts_by_node: dict[str, list[dict[str, Any]]] = {}
    ephemeral_port: int = 0
    jaccl_devices: list[list[str | None]] = []
    jaccl_coordinators: dict[str, str] = {}
    context_length: int = 0
    placed_at: int = 0


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """One way to place a model. `error` is null when it is possible."""

    model_id: str
    sharding: Sharding
    instance_meta: Transport
    instance: dict[str, WireInstance] | None
    memory_delta_by_node: dict[str, int] | None
    error: str | None
    error_code: str | None = None


class Previews(msgspec.Struct, frozen=True):
    """All of them."""

    previews: list[Preview]


def instance_to_wire(instance: Instance) -> dict[str, WireInstance]:
    """Give upstream's shape."""
    card, tag = card_to_wire(instance.model), _SHARD_OF[instance.sharding]
    shards: dict[str, dict[str, WireShard]] = {
        shard.runner: {
            tag: WireShard(
                model_card=card,
                device_rank=shard.rank,
                world_size=shard.world_size,
                start_layer=shard.start_layer,
                end_layer=shard.end_layer,
                n_layers=shard.n_layers,
                memory_bytes=shard.memory_bytes,
            )
        }
        for shard in instance.shards
    }
    assignments = WireAssignments(
        model_id=instance.model.model_id,
        runner_to_shard=shards,
        node_to_runner={shard.node: shard.runner for shard in instance.shards},
    )
    wire = WireInstance(
        instance_id=instance.id,
        shard_assignments=assignments,
        hosts_by_node={shard.node: [] for shard in instance.shards},
        context_length=instance.context_length,
        placed_at=instance.placed_at,
    )
    return {_INSTANCE_OF[instance.transport]: wire}


def instance_from_wire(body: Any) -> Instance:
    """Give our type; both spellings of keys are read. Raises `invalid_request` naming the field."""
    tagged = convert_body(dict[str, WireInstance], to_camel(body))
    transport, wire = _untag(tagged, _TRANSPORTS, "instance")
    assignments = wire.shard_assignments
    node_of = {runner: node for node, runner in assignments.node_to_runner.items()}
    shardings: set[Sharding] = set()
    shards: list[Shard] = []
    card: WireCard | None = None
    for runner, tagged_shard in assignments.runner_to_shard.items():
        where = f"instance.shardAssignments.runnerToShard.{runner}"
        sharding, shard = _untag(tagged_shard, _SHARDINGS, where)
        if runner not in node_of:
            raise invalid(f"The runner {runner} is on no node.", "instance.shardAssignments.nodeToRunner")
        shardings.add(sharding)
        card = shard.model_card
        shards.append(_shard_of(runner, shard, node=node_of[runner]))
    if card is None or len(shardings) != 1:
        raise invalid("An instance needs at least one shard, and all of one kind.", "instance.shardAssignments")
    return Instance(
        id=InstanceId(wire.instance_id),
        model=card_from_wire(card),
        sharding=shardings.pop(),
        transport=transport,
        shards=tuple(sorted(shards, key=lambda shard: shard.rank)),
        context_length=wire.context_length,
        placed_at=wire.placed_at,
    )


def _shard_of(runner: str, shard: WireShard, *, node: str) -> Shard:
    return Shard(
        runner=RunnerId(runner),
        node=NodeId(node),
        rank=shard.device_rank,
        world_size=shard.world_size,
        start_layer=shard.start_layer,
        end_layer=shard.end_layer,
        n_layers=shard.n_layers,
        memory_bytes=shard.memory_bytes,
    )


def _untag(tagged: dict[str, Tagged], kinds: dict[str, Kind], where: str) -> tuple[Kind, Tagged]:
    tag, value = next(iter(tagged.items()), ("", None))
    if len(tagged) != 1 or tag not in kinds or value is None:
        raise invalid(f"Expected exactly one of {', '.join(kinds)}.", where)
    return kinds[tag], value
