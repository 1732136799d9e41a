"""The model families that can be imported: how GGUF names their tensors and how MLX does. Pure data."""

import msgspec

EMBEDDING = "token_embd.weight"
OUTPUT_HEAD = "output.weight"
ROPE_FACTORS = "rope_freqs.weight"

_GLOBAL_MODULES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_MODULES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_MATRICES_AND_NORMS = frozenset(f"{name}.weight" for name in _LAYER_MODULES)
_ATTENTION_BIASES = frozenset({"attn_q.bias", "attn_k.bias", "attn_v.bias"})
_HEAD_NORMS = frozenset({"attn_q_norm.weight", "attn_k_norm.weight"})


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One `general.architecture` of GGUF and the model of mlx-lm that computes the same."""

    model_type: str
    class_name: str
    layer_tensors: frozenset[str]
    interleaved_rope: bool = False
    """llama.cpp stores q and k of this family with each head's rows interleaved; MLX wants halves."""


FAMILIES = {
    # Also Mistral, SmolLM and others that share its graph.
    "llama": Family(
        model_type="llama",
        class_name="LlamaForCausalLM",
        layer_tensors=_MATRICES_AND_NORMS,
        interleaved_rope=True,
    ),
    "qwen2": Family(
        model_type="qwen2",
        class_name="Qwen2ForCausalLM",
        layer_tensors=_MATRICES_AND_NORMS | _ATTENTION_BIASES,
    ),
    "qwen3": Family(
        model_type="qwen3",
        class_name="Qwen3ForCausalLM",
        layer_tensors=_MATRICES_AND_NORMS | _HEAD_NORMS,
    ),
}


def rename_tensor(name: str, family: Family) -> str | None:
    """Give mlx-lm's name of a GGUF tensor (`blk.0.attn_q.weight`), None when the family has none such."""
    head, _, kind = name.rpartition(".")
    if kind == "weight" and head in _GLOBAL_MODULES:
        return f"{_GLOBAL_MODULES[head]}.weight"
    block, _, rest = name.partition(".")
    layer, _, local = rest.partition(".")
    if block != "blk" or not layer.isdecimal() or local not in family.layer_tensors:
        return None
    module = local.removesuffix(f".{kind}")
    known = {**_LAYER_MODULES, "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
    return f"model.layers.{layer}.{known[module]}.{kind}"
