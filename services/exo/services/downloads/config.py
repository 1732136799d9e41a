"""A model card from a plain `config.json`, for folders that nobody wrote a card for. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from exo.streams.ids import ModelId
from exo.streams.models import ModelCard

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length")


def build_card(config: Mapping[str, Any], *, model_id: ModelId, storage_bytes: int) -> ModelCard:
    """Read the facts that placement needs; what the file does not say stays 0."""
    shape: Mapping[str, Any] = {**config, **(config.get("text_config") or {})}
    hidden, heads = _number(shape, "hidden_size", "n_embd", "d_model"), _number(shape, "num_attention_heads", "n_head")
    architectures = cast("list[object]", config.get("architectures") or [])
    return ModelCard(
        model_id=model_id,
        name=model_id.rsplit("/", 1)[-1],
        family=str(config.get("model_type", "")),
        architecture=str(architectures[0]) if architectures else "",
        quantization=_name_quantization(config),
        n_layers=max(_number(shape, *_LAYERS), 1),
        hidden_size=hidden,
        attention_heads=heads,
        key_value_heads=_number(shape, "num_key_value_heads") or heads,
        head_dim=_number(shape, "head_dim") or (hidden // heads if heads else 0),
        vocabulary_size=_number(shape, "vocab_size"),
        context_length=_number(shape, *_CONTEXT),
        storage_bytes=storage_bytes,
        source="folder",
    )


def _number(config: Mapping[str, Any], *names: str) -> int:
    values = (config.get(name) for name in names)
    return next((value for value in values if isinstance(value, int) and value > 0), 0)


def _name_quantization(config: Mapping[str, Any]) -> str:
    quantization = cast("Mapping[str, object]", config.get("quantization") or {})
    bits = quantization.get("bits")
    return f"{bits}bit" if bits else str(config.get("torch_dtype") or config.get("dtype") or "")
