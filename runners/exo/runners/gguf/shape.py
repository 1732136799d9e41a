"""The dimensions of a model, read from GGUF metadata. Pure; refuses what it does not understand.

A key that changes the computation must never be skipped in silence, so every key of the model's own
namespace is either used here, known to be harmless, or refused by name.
"""

from typing import TypeVar

import msgspec
import numpy as np

from exo.runners.gguf.errors import FileDamaged, Unsupported
from exo.runners.gguf.families import EMBEDDING, FAMILIES, OUTPUT_HEAD, Family
from exo.runners.gguf.rope import RopeScaling, read_rope_scaling
from exo.runners.gguf.source import GgufFile, Metadata

_OTHER_FORMAT = "get the model in MLX or safetensors form"
_USED_KEYS = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.layer_norm_rms_epsilon", "attention.sliding_window",
    "rope.freq_base", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "expert_count",
}  # fmt: skip

T = TypeVar("T", int, float, str, bool)


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """What config.json says of a model, in numbers."""

    family: Family
    n_layers: int
    hidden_size: int
    intermediate_size: int
    attention_heads: int
    key_value_heads: int
    head_dim: int
    vocabulary_size: int
    context_length: int
    norm_epsilon: float
    rope_base: float
    rope_scaling: RopeScaling | None
    tied_embeddings: bool


def get_value(metadata: Metadata, key: str, kind: type[T]) -> T | None:
    """Give a metadata value, None when it is absent; raises `FileDamaged` for another type."""
    value = metadata.get(key)
    if value is None or isinstance(value, kind):
        return value
    raise FileDamaged(f"{key} should be {kind.__name__}, not {type(value).__name__}", _OTHER_FORMAT)


def require_value(metadata: Metadata, key: str, kind: type[T]) -> T:
    """Give a metadata value that a model cannot do without."""
    value = get_value(metadata, key, kind)
    if value is None:
        raise FileDamaged(f"the metadata lack {key}", _OTHER_FORMAT)
    return value


def read_shape(file: GgufFile) -> ModelShape:
    """Read the dimensions; raises `Unsupported` naming what cannot be imported correctly."""
    metadata = file.metadata
    family, prefix = _find_family(metadata)
    _refuse_unknown(metadata, prefix)
    heads = require_value(metadata, f"{prefix}attention.head_count", int)
    hidden = require_value(metadata, f"{prefix}embedding_length", int)
    context = require_value(metadata, f"{prefix}context_length", int)
    head_dim = _read_head_dim(metadata, prefix, hidden // heads)
    tensors = {tensor.name: tensor for tensor in file.tensors}
    if EMBEDDING not in tensors:
        raise FileDamaged(f"tensor {EMBEDDING} is missing", _OTHER_FORMAT)
    return ModelShape(
        family=family,
        n_layers=require_value(metadata, f"{prefix}block_count", int),
        hidden_size=hidden,
        intermediate_size=require_value(metadata, f"{prefix}feed_forward_length", int),
        attention_heads=heads,
        key_value_heads=get_value(metadata, f"{prefix}attention.head_count_kv", int) or heads,
        head_dim=head_dim,
        vocabulary_size=tensors[EMBEDDING].shape[0],
        context_length=context,
        norm_epsilon=_shorten(require_value(metadata, f"{prefix}attention.layer_norm_rms_epsilon", float)),
        rope_base=_shorten(get_value(metadata, f"{prefix}rope.freq_base", float) or 10000.0),
        rope_scaling=read_rope_scaling(file, prefix, head_dim),
        tied_embeddings=OUTPUT_HEAD not in tensors,
    )


def _find_family(metadata: Metadata) -> tuple[Family, str]:
    kind = get_value(metadata, "general.type", str) or "model"
    if kind != "model":
        raise Unsupported(f"the file holds a {kind}, not a model", "give the model's own .gguf file")
    if (get_value(metadata, "split.count", int) or 1) > 1:
        remedy = "join the parts first: llama-gguf-split --merge"
        raise Unsupported("the file is one part of a split model", remedy)
    architecture = require_value(metadata, "general.architecture", str)
    if architecture not in FAMILIES:
        names = ", ".join(sorted(FAMILIES))
        message = f"architecture {architecture} is not one of those imported ({names})"
        raise Unsupported(message, _OTHER_FORMAT)
    return FAMILIES[architecture], f"{architecture}."


def _refuse_unknown(metadata: Metadata, prefix: str) -> None:
    own = {key.removeprefix(prefix) for key in metadata if key.startswith(prefix)}
    if unknown := sorted(own - _USED_KEYS):
        raise Unsupported(f"the model uses {', '.join(unknown)}", _OTHER_FORMAT)
    if experts := get_value(metadata, f"{prefix}expert_count", int):
        raise Unsupported(f"the model is a mixture of {experts} experts", _OTHER_FORMAT)
    context = require_value(metadata, f"{prefix}context_length", int)
    window = get_value(metadata, f"{prefix}attention.sliding_window", int)
    if window and window < context:
        message = f"the model attends over a sliding window of {window} tokens"
        raise Unsupported(message, _OTHER_FORMAT)


def _read_head_dim(metadata: Metadata, prefix: str, default: int) -> int:
    head_dim = get_value(metadata, f"{prefix}attention.key_length", int) or default
    for key in ("attention.value_length", "rope.dimension_count"):
        other = get_value(metadata, f"{prefix}{key}", int)
        if other not in {None, head_dim}:
            message = f"{key} is {other} while a head has {head_dim} dimensions"
            raise Unsupported(message, _OTHER_FORMAT)
    return head_dim


def _shorten(value: float) -> float:
    """Undo the widening of a float32: 9.999999747378752e-06 was written as 1e-05."""
    return float(str(np.float32(value)))
