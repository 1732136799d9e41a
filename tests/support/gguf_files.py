"""Small GGUF files of random weights, written by the `gguf` package and so independent of our reader."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from numpy.typing import NDArray

LAYERS, HIDDEN, HEADS, KEY_VALUE_HEADS, HEAD_DIM, INTERMEDIATE, CONTEXT = 2, 64, 4, 2, 16, 96, 512
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Weights = dict[str, NDArray[np.float32]]
Describe = Callable[[GGUFWriter], None]


def byte_characters() -> list[str]:
    """The 256 characters that byte-level BPE writes bytes with, in their usual order of ids."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) for byte in shown] + [chr(256 + place) for place in range(len(hidden))]


SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "Ġ he", "1 2"]
PIECES = [*SPECIAL, *byte_characters(), *(merge.replace(" ", "") for merge in MERGES)]


def random_weights(architecture: str = "llama", *, tied: bool = False, seed: int = 0) -> Weights:
    """Random weights under GGUF names, in the row order of Hugging Face (rotary halves)."""
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> NDArray[np.float32]:
        return random.normal(size=shape).astype(np.float32)

    weights = {"token_embd.weight": draw(len(PIECES), HIDDEN), "output_norm.weight": draw(HIDDEN)}
    if not tied:
        weights["output.weight"] = draw(len(PIECES), HIDDEN)
    for layer in range(LAYERS):
        shapes = {
            "attn_norm.weight": (HIDDEN,),
            "ffn_norm.weight": (HIDDEN,),
            "attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            "attn_k.weight": (KEY_VALUE_HEADS * HEAD_DIM, HIDDEN),
            "attn_v.weight": (KEY_VALUE_HEADS * HEAD_DIM, HIDDEN),
            "attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            "ffn_gate.weight": (INTERMEDIATE, HIDDEN),
            "ffn_up.weight": (INTERMEDIATE, HIDDEN),
            "ffn_down.weight": (HIDDEN, INTERMEDIATE),
        }
        if architecture == "qwen2":
            shapes |= {f"attn_{part}.bias": (shapes[f"attn_{part}.weight"][0],) for part in "qkv"}
        if architecture == "qwen3":
            shapes |= {"attn_q_norm.weight": (HEAD_DIM,), "attn_k_norm.weight": (HEAD_DIM,)}
        weights |= {f"blk.{layer}.{name}": draw(*shape) for name, shape in shapes.items()}
    return weights


def interleave(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """`permute` of llama.cpp's conversion script: halves to pairs."""
    return (
        weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
    )


def write_gguf(
    path: Path,
    weights: Weights,
    *,
    architecture: str = "llama",
    types: Mapping[str, str] | str = "F32",
    scheme: str = "smollm",
    describe: Describe | None = None,
) -> Path:
    """Write a model file. `types` is one type for all matrices or a type by tensor name."""
    writer = GGUFWriter(path, architecture)
    _describe_model(writer, architecture)
    _describe_tokenizer(writer, scheme)
    if describe is not None:
        describe(writer)
    for name, weight in weights.items():
        stored = weight
        if architecture == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            stored = interleave(weight, HEADS if "attn_q" in name else KEY_VALUE_HEADS)
        wanted = types if isinstance(types, str) else types.get(name, "F32")
        kind = GGMLQuantizationType[wanted if weight.ndim > 1 else "F32"]
        writer.add_tensor(name, quants.quantize(stored, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _describe_model(writer: GGUFWriter, architecture: str) -> None:
    writer.add_name("Tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_VALUE_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    if architecture == "llama":
        writer.add_rope_dimension_count(HEAD_DIM)


def _describe_tokenizer(writer: GGUFWriter, scheme: str) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(scheme)
    writer.add_token_list(PIECES)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(PIECES) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)
