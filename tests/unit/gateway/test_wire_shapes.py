"""Upstream's shapes of models and instances: there and back without loss, and refused with a field's name."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exo.gateway.errors import GatewayError
from exo.gateway.wire.casing import to_camel, to_snake
from exo.gateway.wire.instances import instance_from_wire, instance_to_wire
from exo.gateway.wire.models import card_from_wire, card_to_wire
from exo.streams.ids import InstanceId, ModelId, NodeId, RunnerId
from exo.streams.instances import Instance, Shard
from exo.streams.models import ModelCard, SamplingDefaults
from support.fake_cluster import MODEL, instance_of

NAMES = st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True)
COUNTS = st.integers(0, 2**40)

CARDS = st.builds(
    ModelCard,
    model_id=NAMES.map(ModelId),
    name=st.text(max_size=8),
    family=NAMES,
    quantization=NAMES,
    n_layers=st.integers(1, 100),
    key_value_heads=st.integers(0, 64),
    head_dim=st.integers(0, 256),
    context_length=COUNTS,
    parameters=COUNTS,
    storage_bytes=COUNTS,
    supports_tensor=st.booleans(),
    sampling=st.builds(SamplingDefaults, temperature=st.none() | st.floats(0, 2), top_k=st.none() | st.integers(0, 99)),
    is_custom=st.booleans(),
    source=NAMES,
)
SHARDS = st.builds(
    Shard,
    runner=NAMES.map(RunnerId),
    node=NAMES.map(NodeId),
    rank=st.integers(0, 0),
    world_size=st.integers(1, 4),
    start_layer=st.integers(0, 50),
    end_layer=st.integers(0, 50),
    n_layers=st.integers(1, 50),
    memory_bytes=COUNTS,
)
INSTANCES = st.builds(
    Instance,
    id=NAMES.map(InstanceId),
    model=CARDS,
    sharding=st.sampled_from(["Pipeline", "Tensor"]),
    transport=st.sampled_from(["MlxRing", "MlxJaccl"]),
    shards=SHARDS.map(lambda shard: (shard,)),
    context_length=COUNTS,
    placed_at=COUNTS,
)


@given(CARDS)
def test_a_card_comes_back_as_it_was(card: ModelCard) -> None:
    assert card_from_wire(card_to_wire(card)) == card


@given(INSTANCES)
def test_an_instance_comes_back_in_either_spelling(instance: Instance) -> None:
    wire: Any = json.loads(msgspec.json.encode(instance_to_wire(instance)))
    assert instance_from_wire(wire) == instance
    assert instance_from_wire(to_snake(wire)) == instance


def test_keys_change_but_tags_and_values_do_not() -> None:
    wire = {"MlxRingInstance": {"instanceId": "aB_c", "hostsByNode": {"n1": [{"ip": "x"}]}}}
    snake = {"MlxRingInstance": {"instance_id": "aB_c", "hosts_by_node": {"n1": [{"ip": "x"}]}}}
    assert to_snake(wire) == snake
    assert to_camel(snake) == wire


def edited(path: list[str], value: Any) -> Any:
    """The wire shape of an instance with one place changed; None takes the key away."""
    wire: Any = json.loads(msgspec.json.encode(instance_to_wire(instance_of(MODEL))))
    place = wire
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return wire


RUNNER = ["MlxRingInstance", "shardAssignments", "runnerToShard", "runner-instance-1"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["MlxRingInstance"], None),
        (["Another"], {}),
        (["MlxRingInstance", "instanceId"], None),
        (["MlxRingInstance", "shardAssignments", "runnerToShard"], {}),
        (["MlxRingInstance", "shardAssignments", "nodeToRunner"], {}),
        (RUNNER, {"UnknownShard": {}}),
        ([*RUNNER, "PipelineShardMetadata", "startLayer"], "first"),
        ([*RUNNER, "PipelineShardMetadata", "modelCard", "storageSize"], 7),
    ],
)
def test_a_malformed_instance_is_refused(path: list[str], value: Any) -> None:
    with pytest.raises(GatewayError) as refused:
        instance_from_wire(edited(path, value))
    assert refused.value.status == 400
    assert refused.value.message
