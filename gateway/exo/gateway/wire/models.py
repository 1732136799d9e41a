"""Model cards and model-list entries as upstream writes them."""

from typing import Any

import msgspec

from exo.streams.ids import ModelId
from exo.streams.models import ModelCard, SamplingDefaults


class Bytes(msgspec.Struct, frozen=True, rename="camel"):
    """A count of bytes."""

    in_bytes: int


class WireSampling(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Sampling defaults of a card."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class WireCard(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A model card: upstream's keys, then ours."""

    model_id: str
    storage_size: Bytes
    n_layers: int = 1
    hidden_size: int = 0
    supports_tensor: bool = False
    num_key_value_heads: int | None = None
    tasks: tuple[str, ...] = ("TextGeneration",)
    components: None = None
    family: str = ""
    quantization: str = ""
    base_model: str = ""
    capabilities: tuple[str, ...] = ("text",)
    backends: tuple[str, ...] = ModelCard(model_id=ModelId("")).backends
    reasoning_dialect: str = "none"
    context_length: int = 0
    uses_cfg: bool = False
    trust_remote_code: bool = False
    is_custom: bool = False
    vision: None = None
    sampling_defaults: WireSampling = WireSampling()
    name: str = ""
    architecture: str = ""
    attention_heads: int = 0
    head_dim: int = 0
    vocabulary_size: int = 0
    parameters: int = 0
    source: str = ""


_SHARED = (
    "n_layers",
    "hidden_size",
    "supports_tensor",
    "tasks",
    "family",
    "quantization",
    "base_model",
    "capabilities",
    "backends",
    "reasoning_dialect",
    "context_length",
    "trust_remote_code",
    "is_custom",
    "name",
    "architecture",
    "attention_heads",
    "head_dim",
    "vocabulary_size",
    "parameters",
    "source",
)
_SAMPLING = SamplingDefaults.__struct_fields__


def card_to_wire(card: ModelCard) -> WireCard:
    """Give upstream's shape."""
    return WireCard(
        model_id=card.model_id,
        storage_size=Bytes(card.storage_bytes),
        num_key_value_heads=card.key_value_heads or None,
        sampling_defaults=WireSampling(**{name: getattr(card.sampling, name) for name in _SAMPLING}),
        **{name: getattr(card, name) for name in _SHARED},
    )


def card_from_wire(card: WireCard) -> ModelCard:
    """Give our type."""
    return ModelCard(
        model_id=ModelId(card.model_id),
        storage_bytes=card.storage_size.in_bytes,
        key_value_heads=card.num_key_value_heads or 0,
        sampling=SamplingDefaults(**{name: getattr(card.sampling_defaults, name) for name in _SAMPLING}),
        **{name: getattr(card, name) for name in _SHARED},
    )


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One model in a list. `status` and everything after it are ours."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "exo"
    hugging_face_id: str
    name: str
    description: str = ""
    context_length: int
    tags: tuple[str, ...] = ()
    storage_size_megabytes: int
    supports_tensor: bool
    tasks: tuple[str, ...]
    is_custom: bool
    family: str
    quantization: str
    base_model: str
    capabilities: tuple[str, ...]
    reasoning_dialect: str
    status: str
    instances: tuple[str, ...] = ()
    source: str = ""


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /v1/models`."""

    object: str = "list"
    data: tuple[ModelEntry, ...]


def entry_of(card: ModelCard, *, created: int, status: str, instances: tuple[str, ...] = ()) -> ModelEntry:
    """Give a model-list entry. `created` is Unix time in seconds; sizes are rounded to whole megabytes."""
    return ModelEntry(
        id=card.model_id,
        created=created,
        hugging_face_id=card.model_id,
        name=card.name or card.model_id.rpartition("/")[2],
        context_length=card.context_length,
        storage_size_megabytes=round(card.storage_bytes / 1_000_000),
        supports_tensor=card.supports_tensor,
        tasks=card.tasks,
        is_custom=card.is_custom,
        family=card.family,
        quantization=card.quantization,
        base_model=card.base_model,
        capabilities=card.capabilities,
        reasoning_dialect=card.reasoning_dialect,
        status=status,
        instances=instances,
        source=card.source,
    )


def to_builtins(value: Any) -> Any:
    """Give plain dicts and lists."""
    return msgspec.to_builtins(value)
