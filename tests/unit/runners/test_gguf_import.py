"""Whole imports of small files: what arrives in the folder, and what is refused before anything is written."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from gguf import GGUFWriter, RopeScalingType
from numpy.typing import NDArray

from exo.runners.convert import main
from exo.runners.gguf.errors import ConversionError, FileDamaged, Unsupported
from exo.runners.gguf.folder import CARD_FILE
from exo.runners.gguf.importer import Progress, import_gguf
from exo.runners.gguf.plan import WeightForm, plan_shards, plan_tensors
from exo.runners.gguf.rope import compute_llama3_factors, match_llama3
from exo.runners.gguf.shape import read_shape
from exo.runners.gguf.source import GgufFile
from exo.streams.models import ModelCard
from support.gguf_files import HEAD_DIM, PIECES, random_weights, write_gguf

NUMPY_TYPES = {"U32": "<u4", "F32": "<f4", "F16": "<f2"}


def load_safetensors(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read a file by the letter of its specification."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__")
    data = content[8 + length :]
    return {
        name: np.frombuffer(data[slice(*entry["data_offsets"])], NUMPY_TYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
    }


def convert(source: Path, form: WeightForm = "native") -> Path:
    folder = source.parent / "model"
    import_gguf(source, folder, form=form, model_id="test/tiny", on_progress=lambda _: None)
    return folder


def mlx_name(name: str) -> str:
    """Names of mlx-lm, written out independently of the table under test."""
    renamed = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_output": "self_attn.o_proj",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
        "token_embd": "model.embed_tokens",
        "output_norm": "model.norm",
        "output": "lm_head",
    }
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{renamed[parts[2]]}.{parts[3]}"
    return f"{renamed[parts[0]]}.{parts[1]}"


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_every_weight_arrives_in_its_place_and_order(architecture: str, tmp_path: Path) -> None:
    weights = random_weights(architecture)
    folder = convert(write_gguf(tmp_path / "tiny.gguf", weights, architecture=architecture))
    arrived = load_safetensors(folder / "model.safetensors")
    expected = {mlx_name(name): weight for name, weight in weights.items()}
    assert arrived.keys() == expected.keys()
    assert all(np.array_equal(arrived[name], weight) for name, weight in expected.items())
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == architecture
    assert config["rms_norm_eps"] == 1e-5
    assert not config["tie_word_embeddings"]
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == dict.fromkeys(expected, "model.safetensors")


def test_mixed_types_keep_their_own_bits(tmp_path: Path) -> None:
    types = {"token_embd.weight": "Q8_0", "blk.0.ffn_up.weight": "F16", "blk.0.attn_q.weight": "Q4_0"}
    types |= {f"blk.{layer}.ffn_down.weight": "Q4_1" for layer in range(2)}
    folder = convert(write_gguf(tmp_path / "tiny.gguf", random_weights(tied=True), types=types))
    arrived = load_safetensors(folder / "model.safetensors")
    assert arrived["model.embed_tokens.weight"].dtype == np.uint32
    assert arrived["model.layers.0.mlp.up_proj.weight"].dtype == np.float16
    assert arrived["model.layers.0.self_attn.k_proj.weight"].dtype == np.float32
    config = json.loads((folder / "config.json").read_text())
    assert config["tie_word_embeddings"]
    assert config["quantization"] == {
        "group_size": 32,
        "bits": 4,
        "mode": "affine",
        "model.embed_tokens": {"group_size": 32, "bits": 8, "mode": "affine"},
    }


def test_dense_import_computes_the_same_numbers(tmp_path: Path) -> None:
    weights = random_weights()
    folder = convert(write_gguf(tmp_path / "tiny.gguf", weights, types="Q8_0"), "float32")
    arrived = load_safetensors(folder / "model.safetensors")
    assert "quantization" not in json.loads((folder / "config.json").read_text())
    for name, weight in weights.items():
        assert np.allclose(arrived[mlx_name(name)], weight, atol=0.03)


def test_the_card_tells_what_placement_needs(tmp_path: Path) -> None:
    weights = random_weights()
    folder = convert(write_gguf(tmp_path / "tiny.gguf", weights, types="Q8_0"))
    content = (folder / CARD_FILE).read_bytes()
    card = msgspec.json.decode(content, type=ModelCard)
    arrived = load_safetensors(folder / "model.safetensors")
    assert card.model_id == "test/tiny"
    assert card.parameters == sum(weight.size for weight in weights.values())
    assert card.storage_bytes == sum(array.nbytes for array in arrived.values())
    assert (card.n_layers, card.key_value_heads, card.head_dim, card.context_length) == (2, 2, 16, 512)
    assert (card.quantization, card.source, card.vocabulary_size) == ("Q8_0", "gguf:tiny.gguf", len(PIECES))
    assert len(json.loads(content)["source_sha256"]) == 64


def test_answers_end_at_every_end_token(tmp_path: Path) -> None:
    folder = convert(write_gguf(tmp_path / "tiny.gguf", random_weights()))
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [2, 0]


def add(key: str, value: int) -> Callable[[GGUFWriter], None]:
    return lambda writer: writer.add_uint32(key, value)


def add_text(key: str, value: str) -> Callable[[GGUFWriter], None]:
    return lambda writer: writer.add_string(key, value)


def scale_by_yarn(writer: GGUFWriter) -> None:
    writer.add_rope_scaling_type(RopeScalingType.YARN)


@pytest.mark.parametrize(
    ("describe", "named"),
    [
        (add("llama.expert_count", 8), "8 experts"),
        (add("llama.attention.sliding_window", 128), "sliding window of 128"),
        (add("llama.attention.key_length", 32), "rope.dimension_count is 16"),
        (add("llama.some_new_thing", 1), "some_new_thing"),
        (add("split.count", 3), "part of a split model"),
        (scale_by_yarn, "rope scaling yarn"),
        (add_text("general.type", "adapter"), "holds a adapter"),
    ],
)
def test_metadata_that_change_the_answer_are_refused_by_name(
    describe: Callable[[GGUFWriter], None], named: str, tmp_path: Path
) -> None:
    source = write_gguf(tmp_path / "tiny.gguf", random_weights(), describe=describe)
    with pytest.raises(Unsupported, match=named):
        convert(source)
    assert list(tmp_path.iterdir()) == [source]


def test_unknown_architectures_tensors_and_types_are_refused_by_name(tmp_path: Path) -> None:
    strange = write_gguf(tmp_path / "a.gguf", random_weights(), architecture="gemma9")
    extra = write_gguf(tmp_path / "b.gguf", random_weights() | {"blk.0.attn_sinks.weight": np.ones(4, np.float32)})
    typed = write_gguf(tmp_path / "c.gguf", random_weights(), types={"output.weight": "Q5_0"})
    scheme = write_gguf(tmp_path / "d.gguf", random_weights(), scheme="tekken")
    for source, named in [(strange, "gemma9"), (extra, "attn_sinks"), (typed, r"Q5_0 \(1 "), (scheme, "tekken")]:
        with pytest.raises(Unsupported, match=named):
            convert(source)
    assert not (tmp_path / "model").exists()


def test_a_missing_tensor_is_found_before_writing(tmp_path: Path) -> None:
    weights = random_weights()
    del weights["blk.1.ffn_up.weight"]
    with pytest.raises(FileDamaged, match=r"blk\.1\.ffn_up"):
        convert(write_gguf(tmp_path / "tiny.gguf", weights))


def test_linear_rope_scaling_is_carried_over(tmp_path: Path) -> None:
    def describe(writer: GGUFWriter) -> None:
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)

    folder = convert(write_gguf(tmp_path / "tiny.gguf", random_weights(), describe=describe))
    scaling = json.loads((folder / "config.json").read_text())["rope_scaling"]
    assert scaling == {"type": "linear", "rope_type": "linear", "factor": 4.0}


def test_llama3_rope_is_recognised_by_its_factors(tmp_path: Path) -> None:
    factors = compute_llama3_factors(8.0, 10000.0, HEAD_DIM)
    assert factors.min() == 1.0
    weights = random_weights() | {"rope_freqs.weight": factors}
    folder = convert(write_gguf(tmp_path / "tiny.gguf", weights))
    scaling = json.loads((folder / "config.json").read_text())["rope_scaling"]
    assert scaling["rope_type"] == "llama3"
    assert scaling["factor"] == 8.0
    assert "rope" not in (folder / "model.safetensors.index.json").read_text()
    with pytest.raises(Unsupported, match="rope_freqs"):
        match_llama3(factors * np.linspace(1, 2, len(factors), dtype=np.float32), 10000.0, HEAD_DIM)


def test_large_models_are_cut_into_files(tmp_path: Path) -> None:
    with GgufFile(write_gguf(tmp_path / "tiny.gguf", random_weights())) as file:
        plans = plan_tensors(file.tensors, read_shape(file), "native")
    shards = plan_shards(plans, 50_000)
    assert [plan for shard in shards for plan in shard] == plans
    assert len(shards) > 2
    assert all(len(shard) == 1 or sum(plan.output_bytes for plan in shard) <= 50_000 for shard in shards)


def test_the_command_speaks_json_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_gguf(tmp_path / "tiny.gguf", random_weights())
    assert main([str(source), str(tmp_path / "model"), "--model-id", "test/tiny"]) == 0
    *progress, done = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["stage"] for line in progress} == {"hashing", "writing"}
    assert progress[-1]["done"] == progress[-1]["total"]
    assert (done["type"], done["card"]["model_id"]) == ("done", "test/tiny")
    assert main([str(source), str(tmp_path / "model")]) == 1
    refused = json.loads(capsys.readouterr().out)
    assert (refused["type"], refused["code"]) == ("error", "destination_exists")


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = [ConversionError, *ConversionError.__subclasses__()]
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_progress_never_runs_backwards(tmp_path: Path) -> None:
    seen: list[Progress] = []
    source = write_gguf(tmp_path / "tiny.gguf", random_weights())
    import_gguf(source, tmp_path / "model", form="native", model_id="tiny", on_progress=seen.append)
    for stage in ("hashing", "writing"):
        done = [progress.done for progress in seen if progress.stage == stage]
        assert done == sorted(done)
