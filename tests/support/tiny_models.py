"""Random models of 1-2 MB, one per architecture, that mlx-lm loads like real ones.

Their tokenizer is trained here on a few sentences, so no network and no other model is needed. Weights
are random but seeded: answers are nonsense and the same on every run.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from exo.runners.blas import load_blas_once

load_blas_once()

import mlx.core as mx  # noqa: E402 - after its BLAS was chosen
from mlx import nn  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402
from mlx_lm.utils import _get_classes  # noqa: E402

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
CONTEXT = 1024
VOCABULARY = 512
CHAT_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{% set tool_call = call.function %}<tool_call>\n"
    '{"name": "{{ tool_call.name }}", "arguments": {{ tool_call.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif %}"
)
_CORPUS = (
    "The quick brown fox jumps over the lazy dog while the rain in Spain stays mainly in the plain.",
    "A model is a list of numbers; a token is a run of bytes; an answer is one token after another.",
    "Nodes talk to the hub, the hub writes a log, and everybody who follows the log knows the same state.",
    "def add(left, right):\n    return left + right\n\nprint(add(1, 2))\n",
    "Où est la bibliothèque? Straße, naïve, señor. 日本語の文章です。 Добрый день! 🙂🚀",
    "Numbers such as 1, 22, 333 and 4444 are common; so are https://example.org/paths and 'quotes'.",
)
_BASE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY,
    "rope_theta": 10000.0,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "gemma3_text": {
        "sliding_window": 32,
        "sliding_window_pattern": 2,
        "rope_global_base_freq": 1e6,
        "rope_local_base_freq": 1e4,
        "query_pre_attn_scalar": 16,
    },
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 32,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 32,
        },
    },
}
"""What each differs in from `_BASE`."""


def make_tiny_model(
    folder: Path, architecture: str = "llama", *, bits: int | None = None, seed: int = 0, fluent: bool = False
) -> Path:
    """Write a model folder.

    With `bits` it is quantised in groups of 32 with float16 scales, as downloads are. A `fluent` one
    greedily answers in plain ASCII and never ends by itself.
    """
    config = {"model_type": architecture, **_BASE, **ARCHITECTURES[architecture]}
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    model = _build(config, seed)
    if fluent:
        _silence(model, [number for piece, number in _read_vocabulary(folder).items() if not _is_plain(piece)])
    if bits is not None:
        model.set_dtype(mx.float16)
        nn.quantize(model, group_size=32, bits=bits)
        config["quantization"] = {"group_size": 32, "bits": bits}
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    return folder


def write_tokenizer(folder: Path, *, template: str | None = CHAT_TEMPLATE) -> None:
    """Train the byte-level tokenizer of all tiny models and write its two files."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(piece, special=True, normalized=False) for piece in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[2],
    }
    if template is not None:
        described["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(described))


def _build(config: dict[str, Any], seed: int) -> nn.Module:
    model_class, arguments = _get_classes(config)
    model: nn.Module = model_class(arguments.from_dict(config))
    mx.random.seed(seed)
    model.load_weights([(name, _draw(name, value)) for name, value in tree_flatten(model.parameters())])
    return model


def _silence(model: nn.Module, tokens: list[int]) -> None:
    """Give these tokens the logit 0, which the largest of some hundred random ones always beats."""
    head = model.lm_head
    assert isinstance(head, nn.Linear)
    head.weight[mx.array(tokens)] = 0


def _read_vocabulary(folder: Path) -> dict[str, int]:
    return Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()


def _is_plain(piece: str) -> bool:
    return piece not in SPECIAL and piece.replace("Ġ", " ").isprintable() and piece.replace("Ġ", " ").isascii()


def _draw(name: str, value: mx.array) -> mx.array:
    """Random values of a size that keeps activations in bounds and greedy answers varied."""
    if not mx.issubdtype(value.dtype, mx.floating):
        return value
    if value.ndim >= 2:
        return mx.random.normal(value.shape) * (1.0 if "embed" in name else value.shape[-1] ** -0.5)
    if name.endswith("bias") or "sinks" in name:
        return mx.random.normal(value.shape) * 0.02
    return value.astype(mx.float32)
