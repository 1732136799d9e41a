"""How much memory a model needs on one node, and how much a node has to give. Pure; all sizes in bytes."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from exo.streams.ids import NodeId
from exo.streams.models import ModelCard
from exo.streams.pipe import EngineName
from exo.streams.state import State
from exo.streams.telemetry import MemoryGauge

GB = 1_000_000_000
MIB = 1 << 20

FULL_SEQUENCES = 4
"""Requests whose KV cache may fill the whole context at once; more, shorter ones share the same room."""
LEAST_CONTEXT = 2048
"""Tokens below which a model is not worth placing."""
UNKNOWN_CONTEXT = 4096
CONTEXT_STEP = 256

_PROCESS = 384 * MIB
_SCRIPTED_PROCESS = 128 * MIB
_ACTIVATIONS = 0.05
"""Of the weights: intermediate values of a step, buffers that the allocator keeps."""
_FLOAT32 = 4
_FLOAT16 = 2


Form = Literal["dense", "packed", "stored"]
"""How a node holds weights: on a CPU unpacked to float32, or packed with float32 scales; elsewhere as stored."""

_PACKED_GROWTH = 1.2
"""Of packed weights on a CPU: their scales become float32, which a CPU computes 50 times as quickly as float16."""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What one shard takes."""

    weights: int
    kv_cache: int
    overhead: int
    context_length: int
    form: Form

    @property
    def total(self) -> int:
        return self.weights + self.kv_cache + self.overhead


def engine_of(card: ModelCard) -> EngineName:
    """Give the engine that runs a model."""
    return "scripted" if card.architecture == "scripted" else "mlx"


def kv_bytes_per_token(card: ModelCard, *, form: Form) -> int:
    """Keys and values of one token in all layers, float32 on a CPU.

    Where the card is silent, as if every head had its own.
    """
    head_dim = card.head_dim or (card.hidden_size // card.attention_heads if card.attention_heads else 0)
    heads = card.key_value_heads or card.attention_heads
    width = heads * head_dim or card.hidden_size
    return 2 * card.n_layers * width * (_FLOAT16 if form == "stored" else _FLOAT32)


def estimate(card: ModelCard, *, context_length: int, form: Form) -> Need:
    """Weights, KV cache for that many tokens, and overhead."""
    weights = _weights(card, form)
    process = _SCRIPTED_PROCESS if engine_of(card) == "scripted" else _PROCESS
    return Need(
        weights=weights,
        kv_cache=kv_bytes_per_token(card, form=form) * context_length * FULL_SEQUENCES,
        overhead=process + round(weights * _ACTIVATIONS),
        context_length=context_length,
        form=form,
    )


def _weights(card: ModelCard, form: Form) -> int:
    if form == "dense":
        return card.parameters * _FLOAT32
    return round(card.storage_bytes * (_PACKED_GROWTH if form == "packed" else 1))


def smallest_form(backends: Iterable[str]) -> Form:
    """Give the form that takes the least memory on a node with these backends."""
    return "packed" if set(backends) == {"MlxCpu"} else "stored"


def fit(card: ModelCard, *, free: int, context_length: int, backends: Iterable[str]) -> Need:
    """Give the best form of a model that fits into `free`; when none does, the smallest one, which is too large.

    `context_length` 0 takes what the model allows, shortened until it fits. On a CPU dense float32
    weights are several times as quick as packed ones, so they come first (measured: 25 times in prefill, 2 in decode).
    """
    smallest_of_all = smallest_form(backends)
    forms: tuple[Form, ...] = (
        ("dense", "packed") if smallest_of_all == "packed" and card.parameters else (smallest_of_all,)
    )
    wanted = context_length or card.context_length or UNKNOWN_CONTEXT
    least = context_length or min(wanted, LEAST_CONTEXT)
    for form in forms:
        smallest = estimate(card, context_length=least, form=form)
        if smallest.total <= free:
            longest = _longest_context(card, smallest, free=free, wanted=wanted)
            return estimate(card, context_length=longest, form=form)
    return estimate(card, context_length=least, form=smallest_of_all)


def _longest_context(card: ModelCard, smallest: Need, *, free: int, wanted: int) -> int:
    per_token = kv_bytes_per_token(card, form=smallest.form) * FULL_SEQUENCES
    if per_token == 0:
        return wanted
    room = (free - smallest.weights - smallest.overhead) // per_token
    if room >= wanted:
        return wanted
    return max(room // CONTEXT_STEP * CONTEXT_STEP, smallest.context_length)


def reserve_of(gauge: MemoryGauge) -> int:
    """What is left to the operating system: 2 GB or a tenth, on small machines a quarter."""
    return min(max(2 * GB, gauge.total // 10), gauge.total // 4)


def promised_on(state: State, node: NodeId, gauge: MemoryGauge) -> int:
    """What placed instances may still take beyond what this node's processes hold already."""
    shards = (shard for instance in state.instances.values() for shard in instance.shards)
    promised = sum(shard.memory_bytes for shard in shards if shard.node == node)
    return max(promised - gauge.process_bytes, 0)


def free_on(state: State, node: NodeId, gauge: MemoryGauge) -> int:
    """What a node can give to one more instance."""
    return max(gauge.available - reserve_of(gauge) - promised_on(state, node, gauge), 0)


def in_gb(size: int) -> str:
    """Write a size as people read it."""
    return f"{size / GB:.1f} GB"
