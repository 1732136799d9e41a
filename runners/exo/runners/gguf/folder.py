"""The JSON files of a model folder, apart from the weights. Pure, but for `write_json`."""

import json
from collections import Counter
from pathlib import Path

import msgspec
from tokenizers import Tokenizer

from exo.runners.gguf.plan import TensorPlan, describe_quantization
from exo.runners.gguf.shape import ModelShape, get_value
from exo.runners.gguf.source import GgufFile, Metadata
from exo.runners.gguf.vocabulary import Vocabulary
from exo.streams.ids import ModelId
from exo.streams.models import ModelCard

CARD_FILE = "exo_card.json"
"""A `ModelCard` as JSON, with `source_sha256` beside its fields; read by the catalogue."""


def write_json(path: Path, content: object) -> None:
    """Write one readable JSON file."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def build_config(shape: ModelShape, vocabulary: Vocabulary, plans: list[TensorPlan]) -> dict[str, object]:
    """Give config.json as mlx-lm and transformers read it."""
    config: dict[str, object] = {
        "architectures": [shape.family.class_name],
        "model_type": shape.family.model_type,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.n_layers,
        "num_attention_heads": shape.attention_heads,
        "num_key_value_heads": shape.key_value_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocabulary_size,
        "max_position_embeddings": shape.context_length,
        "rms_norm_eps": shape.norm_epsilon,
        "rope_theta": shape.rope_base,
        "rope_scaling": shape.rope_scaling,
        "rope_traditional": False,
        "tie_word_embeddings": shape.tied_embeddings,
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "pad_token_id": vocabulary.padding,
    }
    quantization = describe_quantization(plans)
    if quantization is not None:
        config["quantization"] = config["quantization_config"] = quantization
    return config


def build_generation_config(vocabulary: Vocabulary) -> dict[str, object]:
    """Give generation_config.json: every token that ends an answer."""
    return {
        "bos_token_id": vocabulary.bos,
        "eos_token_id": list(vocabulary.ends),
        "pad_token_id": vocabulary.padding,
    }


def build_tokenizer_config(metadata: Metadata, vocabulary: Vocabulary, context_length: int) -> dict[str, object]:
    """Give tokenizer_config.json, with the chat template when the file has one."""
    special = {
        "bos_token": vocabulary.piece(vocabulary.bos),
        "eos_token": vocabulary.piece(vocabulary.eos),
        "unk_token": vocabulary.piece(vocabulary.unknown),
        "pad_token": vocabulary.piece(vocabulary.padding),
        "chat_template": get_value(metadata, "tokenizer.chat_template", str),
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_length,
        "clean_up_tokenization_spaces": False,
        **{name: value for name, value in special.items() if value is not None},
    }


def build_card(file: GgufFile, shape: ModelShape, plans: list[TensorPlan], *, model_id: str) -> ModelCard:
    """Give the facts that placement and the model list need."""
    return ModelCard(
        model_id=ModelId(model_id),
        name=get_value(file.metadata, "general.name", str) or model_id,
        family=get_value(file.metadata, "general.basename", str) or shape.family.model_type,
        architecture=shape.family.class_name,
        quantization=_name_quantization(plans),
        n_layers=shape.n_layers,
        hidden_size=shape.hidden_size,
        attention_heads=shape.attention_heads,
        key_value_heads=shape.key_value_heads,
        head_dim=shape.head_dim,
        vocabulary_size=shape.vocabulary_size,
        context_length=shape.context_length,
        parameters=sum(plan.rows * plan.source.shape[-1] for plan in plans),
        storage_bytes=sum(plan.output_bytes for plan in plans),
        source=f"gguf:{file.path.name}",
    )


def _name_quantization(plans: list[TensorPlan]) -> str:
    """Give the format that holds most of the written weights: a block type, or F16 or F32."""
    stored: Counter[str] = Counter()
    for plan in plans:
        name = plan.source.type_name if plan.packed else plan.outputs[0].dtype
        stored[name] += plan.rows * plan.source.shape[-1]
    return stored.most_common(1)[0][0]


def write_descriptions(
    folder: Path,
    file: GgufFile,
    *,
    shape: ModelShape,
    plans: list[TensorPlan],
    vocabulary: Vocabulary,
    tokenizer: Tokenizer,
    card: ModelCard,
    sha256: str,
) -> None:
    """Write every file of the folder but the weights."""
    tokenizer.save(str(folder / "tokenizer.json"))
    described = build_tokenizer_config(file.metadata, vocabulary, shape.context_length)
    write_json(folder / "tokenizer_config.json", described)
    write_json(folder / "generation_config.json", build_generation_config(vocabulary))
    write_json(folder / "config.json", build_config(shape, vocabulary, plans))
    write_json(folder / CARD_FILE, {**msgspec.to_builtins(card), "source_sha256": sha256})
