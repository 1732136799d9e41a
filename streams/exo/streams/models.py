"""What is known of a model without loading it.

Cards come from the catalogue, from imported files and from people; services place by them.
"""

import msgspec

from exo.streams.ids import ModelId


class SamplingDefaults(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Sampling values a model's makers recommend; None where they say nothing."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one model.

    `storage_bytes` is the size of the weight files; `parameters` counts weights (0: unknown);
    `head_dim`, `attention_heads`, `key_value_heads` are 0 when unknown.
    """

    model_id: ModelId
    name: str = ""
    family: str = ""
    base_model: str = ""
    architecture: str = ""
    quantization: str = ""
    tasks: tuple[str, ...] = ("TextGeneration",)
    capabilities: tuple[str, ...] = ("text",)
    n_layers: int = 1
    hidden_size: int = 0
    attention_heads: int = 0
    key_value_heads: int = 0
    head_dim: int = 0
    vocabulary_size: int = 0
    context_length: int = 0
    parameters: int = 0
    storage_bytes: int = 0
    supports_tensor: bool = False
    reasoning_dialect: str = "none"
    backends: tuple[str, ...] = ("MlxMetal", "MlxCuda", "MlxCpu")
    sampling: SamplingDefaults = SamplingDefaults()
    trust_remote_code: bool = False
    is_custom: bool = False
    source: str = ""
    """Where the weights come from: `builtin`, `gguf:<file name>`, `folder`, `hub`."""
