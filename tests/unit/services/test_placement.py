"""Where a model can go, and what is said when it cannot go anywhere."""

import pytest
from msgspec.structs import replace

from exo.services.placement.check import check
from exo.services.placement.memory import (
    FULL_SEQUENCES,
    estimate,
    fit,
    free_on,
    kv_bytes_per_token,
    promised_on,
    reserve_of,
)
from exo.services.placement.place import Memory, PlaceOptions, place, previews
from exo.streams import events as e
from exo.streams.codes import Code
from exo.streams.ids import InstanceId, ModelId, NodeId, RunnerId
from exo.streams.instances import Instance
from exo.streams.links import Link
from exo.streams.models import ModelCard
from exo.streams.placements import Unplaceable
from exo.streams.state import State
from exo.streams.views import nodes_holding
from support.services import GB, NODE, NOW, fold, joined_state, make_card, make_facts, make_instance, make_memory

CARD = make_card()
HELD = joined_state(held=(CARD,))
KV_TOKEN = 2 * 30 * 3 * 64 * 4
CPU = ("MlxCpu",)


def put(card: ModelCard, state: State, memory: Memory | None = None, **options: object) -> Instance | Unplaceable:
    return place(
        card,
        instance=InstanceId("new"),
        state=state,
        memory={NODE: make_memory()} if memory is None else memory,
        options=PlaceOptions(**options),  # pyright: ignore[reportArgumentType] - a table of options
        now=NOW,
    )


def refused(answer: Instance | Unplaceable) -> Unplaceable:
    assert isinstance(answer, Unplaceable), answer
    return answer


def placed(answer: Instance | Unplaceable) -> Instance:
    assert isinstance(answer, Instance), answer
    return answer


def test_the_kv_cache_of_a_token() -> None:
    assert kv_bytes_per_token(CARD, form="dense") == KV_TOKEN
    assert kv_bytes_per_token(CARD, form="packed") == KV_TOKEN
    assert kv_bytes_per_token(CARD, form="stored") == KV_TOKEN // 2


def test_packed_weights_grow_by_their_scales_on_a_cpu() -> None:
    packed, stored = (estimate(CARD, context_length=1, form=form).weights for form in ("packed", "stored"))
    assert stored == CARD.storage_bytes
    assert packed == round(1.2 * CARD.storage_bytes)


def test_an_unknown_shape_is_counted_as_if_every_head_had_its_own_keys() -> None:
    silent = replace(CARD, head_dim=0, key_value_heads=0)
    assert kv_bytes_per_token(silent, form="dense") == 2 * 30 * 576 * 4
    assert kv_bytes_per_token(replace(silent, attention_heads=0), form="dense") == 2 * 30 * 576 * 4


def test_a_shard_needs_weights_cache_and_overhead() -> None:
    need = estimate(CARD, context_length=1000, form="dense")
    assert need.weights == 135_000_000 * 4
    assert need.kv_cache == KV_TOKEN * 1000 * FULL_SEQUENCES
    assert need.total == need.weights + need.kv_cache + need.overhead
    assert need.overhead > 0


@pytest.mark.parametrize(
    ("total", "reserve"), [(4, 1), (8, 2), (16, 2), (64, 6.4)], ids=["small", "8 GB", "16 GB", "large"]
)
def test_the_system_keeps_a_reserve(total: float, reserve: float) -> None:
    assert reserve_of(make_memory(total=total)) == pytest.approx(reserve * GB)


def test_an_instance_that_loads_still_counts_in_full() -> None:
    state = fold(HELD, e.InstancePlaced(instance=make_instance()))
    assert promised_on(state, NODE, make_memory(process=0.1)) == pytest.approx(0.9 * GB)
    assert promised_on(state, NODE, make_memory(process=3)) == 0
    assert promised_on(state, NodeId("node-b"), make_memory()) == 0
    assert free_on(state, NODE, make_memory(10, process=0.1)) == pytest.approx((10 - 2 - 0.9) * GB)


def test_dense_weights_are_for_processors_with_room() -> None:
    assert fit(CARD, free=10 * GB, context_length=0, backends=CPU).form == "dense"
    assert fit(CARD, free=GB, context_length=0, backends=CPU).form == "packed"
    assert fit(CARD, free=10 * GB, context_length=0, backends=("MlxMetal",)).form == "stored"
    assert fit(replace(CARD, parameters=0), free=10 * GB, context_length=0, backends=CPU).form == "packed"


def test_the_context_is_shortened_until_it_fits() -> None:
    assert fit(CARD, free=10 * GB, context_length=0, backends=CPU).context_length == 8192
    tight = fit(CARD, free=2 * GB, context_length=0, backends=CPU)
    assert 2048 <= tight.context_length < 8192
    assert tight.context_length % 256 == 0
    assert tight.total <= 2 * GB
    longer = estimate(CARD, context_length=tight.context_length + 256, form="dense")
    assert longer.total > 2 * GB


def test_a_context_that_was_asked_for_is_not_shortened() -> None:
    assert fit(CARD, free=10 * GB, context_length=3000, backends=CPU).context_length == 3000
    assert fit(CARD, free=GB // 10, context_length=3000, backends=CPU).total > GB // 10


def test_a_model_goes_where_most_memory_is_free() -> None:
    other = NodeId("node-b")
    state = joined_state(held=(CARD,), node=other, state=HELD)
    memory = {NODE: make_memory(8), other: make_memory(9)}
    instance = placed(put(CARD, state, memory))
    (shard,) = instance.shards
    assert shard.node == other
    assert (shard.rank, shard.world_size, shard.start_layer, shard.end_layer) == (0, 1, 0, 30)
    assert shard.memory_bytes == estimate(CARD, context_length=8192, form="dense").total
    assert instance.context_length == 8192


def test_a_model_rather_goes_where_its_tokens_take_a_quick_way() -> None:
    other, far = NodeId("node-b"), Link(peer=NODE, local_address="1", remote_address="2", latency=0.08)
    state = replace(joined_state(held=(CARD,), node=other, state=HELD), master=NODE, links={other: (far,)})
    roomy = {NODE: make_memory(8), other: make_memory(15)}
    assert placed(put(CARD, state, roomy)).shards[0].node == NODE
    assert placed(put(CARD, state, {NODE: make_memory(1), other: make_memory(15)})).shards[0].node == other
    near = replace(state, links={other: (replace(far, latency=0.001),)})
    assert placed(put(CARD, near, roomy)).shards[0].node == other


def test_one_more_copy_goes_where_there_is_none_and_then_where_there_is_least() -> None:
    other, third = NodeId("node-b"), NodeId("node-c")
    state = joined_state(held=(CARD,), node=third, state=joined_state(held=(CARD,), node=other, state=HELD))
    memory = {NODE: make_memory(15), other: make_memory(12), third: make_memory(10)}
    assert placed(put(CARD, state, memory)).shards[0].node == NODE
    instance = make_instance()
    state = fold(state, e.InstancePlaced(instance=instance))
    assert placed(put(CARD, state, memory)).shards[0].node == other
    (shard,) = instance.shards
    foreign = replace(
        instance,
        id=InstanceId("foreign"),
        model=replace(CARD, model_id=ModelId("org/foreign")),
        shards=(replace(shard, node=other, runner=RunnerId("foreign-0")),),
    )
    state = fold(state, e.InstancePlaced(instance=foreign))
    assert placed(put(CARD, state, memory)).shards[0].node == third
    # Where there is no room, a full choice is better than none.
    assert placed(put(CARD, state, {**memory, other: make_memory(1), third: make_memory(1)})).shards[0].node == NODE


def test_only_nodes_with_the_files_count() -> None:
    other = NodeId("node-b")
    state = joined_state(node=other, state=HELD)
    memory = {NODE: make_memory(8), other: make_memory(15)}
    assert placed(put(CARD, state, memory)).shards[0].node == NODE
    assert nodes_holding(state, CARD.model_id) == {NODE}


def test_a_shortage_is_explained_in_numbers() -> None:
    answer = refused(put(make_card(storage_bytes=20 * GB, parameters=0), HELD))
    assert answer.code == Code.INSUFFICIENT_MEMORY
    assert "weights 24.0 GB" in answer.reason
    assert "mac can give 12.0 GB" in answer.reason
    assert "are missing" in answer.reason


def test_the_scripted_model_needs_no_files() -> None:
    card = make_card("exo/scripted", architecture="scripted", n_layers=1, hidden_size=0, attention_heads=0,
                     key_value_heads=0, head_dim=0, parameters=0, storage_bytes=0)  # fmt: skip
    instance = placed(put(card, joined_state()))
    assert instance.context_length == 8192
    assert instance.shards[0].memory_bytes < GB


def test_each_refusal_has_its_code() -> None:
    assert refused(put(CARD, State())).code == Code.UNPLACEABLE
    assert refused(put(CARD, fold(HELD, e.NodeLeft(node=NODE)))).code == Code.UNPLACEABLE
    idle = fold(State(), e.NodeJoined(node=NODE, facts=make_facts(worker=False)))
    assert "no node that runs models" in refused(put(CARD, idle)).reason
    missing = refused(put(CARD, joined_state()))
    assert missing.code == Code.MODEL_FILES_MISSING
    assert "exo models add org/small" in missing.reason
    assert refused(put(CARD, HELD, {})).code == Code.MEMORY_UNKNOWN
    metal = make_card(backends=("MlxMetal",))
    assert "MlxMetal" in refused(put(metal, HELD)).reason
    assert "at most 8192" in refused(put(CARD, HELD, context_length=9000)).reason


def test_a_node_whose_memory_is_not_known_any_more_is_named_where_it_is_missed() -> None:
    state = joined_state(node=NodeId("node-b"), held=(CARD,), state=HELD)
    reason = refused(put(CARD, state, {NODE: make_memory(0.1)})).reason
    assert "not counted, because their memory was not reported lately: mac" in reason


def test_every_combination_is_previewed_with_an_instance_or_a_reason() -> None:
    ids = iter(InstanceId(f"preview-{number}") for number in range(9))
    found = previews(CARD, state=HELD, memory={NODE: make_memory()}, draw_id=lambda: next(ids), now=NOW)
    table = {(preview.sharding, preview.transport): preview for preview in found}
    assert len(table) == len(found) == 4
    possible = table["Pipeline", "MlxRing"]
    assert possible.instance is not None
    assert possible.memory_by_node == {NODE: possible.instance.shards[0].memory_bytes}
    for key, word in {("Tensor", "MlxRing"): "2 nodes", ("Pipeline", "MlxJaccl"): "RDMA"}.items():
        unplaceable = table[key].unplaceable
        assert unplaceable is not None
        assert word in unplaceable.reason
    assert all((preview.instance is None) != (preview.unplaceable is None) for preview in found)


def test_more_nodes_than_this_version_can_use_are_refused() -> None:
    assert "2 nodes" in refused(put(CARD, HELD, min_nodes=2)).reason


def test_a_preview_passes_the_check() -> None:
    assert check(placed(put(CARD, HELD)), state=HELD, memory={NODE: make_memory()}) is None


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"rank": 1}, "rank 0"),
        ({"end_layer": 7}, "all layers"),
        ({"node": "node-z"}, "node-z"),
        ({"runner": "a b"}, "a-z"),
        ({"memory_bytes": 99 * GB}, "missing"),
        ({"memory_bytes": -1}, "negative"),
    ],
)
def test_a_tampered_instance_is_refused(changes: dict[str, object], word: str) -> None:
    instance = placed(put(CARD, HELD))
    tampered = replace(instance, shards=(replace(instance.shards[0], **changes),))
    answer = check(tampered, state=HELD, memory={NODE: make_memory()})
    assert answer is not None
    assert word in answer.reason


def test_an_instance_of_several_shards_is_refused_by_this_version() -> None:
    instance = placed(put(CARD, HELD))
    double = replace(instance, shards=instance.shards * 2)
    answer = check(double, state=HELD, memory={NODE: make_memory()})
    assert answer is not None
    assert "2 shards" in answer.reason


def test_an_instance_on_a_silent_node_is_refused() -> None:
    answer = check(placed(put(CARD, HELD)), state=HELD, memory={})
    assert answer is not None
    assert answer.code == Code.MEMORY_UNKNOWN
