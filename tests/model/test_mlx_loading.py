"""How weights are read: in which form, with what progress, and how it fails."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from exo.runners.engines.engine import TokenStep
from exo.runners.engines.mlx.backend import detect_backend
from exo.runners.engines.mlx.engine import MlxEngine, NotLoadedError
from exo.runners.engines.mlx.loader import ModelUnusableError, choose_dense, load_model
from exo.streams.pipe import EngineOptions
from support.engines import ask, load_engine, make_start, run
from support.tiny_models import make_tiny_model

TinyModel = Callable[..., Path]
ON_CPU = detect_backend() == "MlxCpu"


def options(**values: object) -> EngineOptions:
    return EngineOptions(engine="mlx", **values)  # pyright: ignore[reportArgumentType]


def load(folder: Path, **values: object) -> tuple[nn.Module, bool, int]:
    loaded = load_model(folder, detect_backend(), options=options(**values), on_progress=lambda _d, _t: None)
    return loaded.model, loaded.dense, loaded.weight_bytes


def test_weights_are_unpacked_on_a_cpu_where_they_fit() -> None:
    assert choose_dense("MlxCpu", options(), 10**9)
    assert choose_dense("MlxCpu", options(memory_limit=4 * 10**9), 10**9)
    assert not choose_dense("MlxCpu", options(memory_limit=4 * 10**9 - 1), 10**9)
    assert choose_dense("MlxCpu", options(memory_limit=1, dense_weights=True), 10**9)
    assert not choose_dense("MlxCpu", options(dense_weights=False), 10**9)
    assert not choose_dense("MlxMetal", options(dense_weights=True), 10**9)


@pytest.mark.skipif(not ON_CPU, reason="other backends keep weights as stored")
@pytest.mark.parametrize("architecture", ["llama", "mixtral", "gpt_oss"])
@pytest.mark.parametrize("bits", [4, 8])
def test_both_forms_of_quantised_weights_give_the_same_numbers(
    architecture: str, bits: int, tiny_model: TinyModel
) -> None:
    folder = tiny_model(architecture, bits)
    told: list[list[float]] = []
    for dense in (True, False):
        engine = load_engine(folder, dense_weights=dense)
        (steps,) = run(engine, ask("The quick brown", max_tokens=6, logprobs=True))
        told.append([step.logprob.logprob for step in steps if isinstance(step, TokenStep) and step.logprob])
        engine.close()
    assert np.allclose(told[0], told[1], atol=1e-3)


@pytest.mark.skipif(not ON_CPU, reason="other backends keep weights as stored")
def test_a_cpu_computes_in_float32(tiny_model: TinyModel) -> None:
    for dense in (True, False):
        model, is_dense, size = load(tiny_model("llama", 4), dense_weights=dense)
        flat: list[tuple[str, mx.array]] = tree_flatten(model.parameters())  # pyright: ignore[reportAssignmentType]
        arrays = [array for _, array in flat]
        assert is_dense == dense
        assert {array.dtype for array in arrays} == ({mx.float32} if dense else {mx.float32, mx.uint32})
        assert size == sum(array.nbytes for array in arrays)


def test_the_limit_is_kept(tiny_model: TinyModel) -> None:
    folder = tiny_model("llama", 4)
    _, dense, size = load(folder, dense_weights=False)
    assert not dense
    _, dense, _ = load(folder, memory_limit=size)
    assert not dense
    with pytest.raises(MemoryError, match="this shard may take"):
        load(folder, memory_limit=1)


def test_progress_goes_layer_by_layer(tiny_model: TinyModel) -> None:
    seen: list[tuple[int, int]] = []
    engine = MlxEngine(make_start(tiny_model()))
    engine.load(lambda done, total: seen.append((done, total)))
    engine.close()
    assert seen == [(layer, 4) for layer in range(5)]


def test_an_engine_that_is_not_loaded_says_so(tiny_model: TinyModel) -> None:
    engine = MlxEngine(make_start(tiny_model()))
    assert engine.active == 0
    with pytest.raises(NotLoadedError):
        engine.render(ask("x"))
    engine.load(lambda _d, _t: None)
    engine.close()
    with pytest.raises(NotLoadedError):
        engine.step()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_missing_files_are_named(name: str, tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model(), folder)
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"lacks {name}; add the model again"):
        load_engine(folder)


def test_what_mlx_lm_does_not_know_is_unusable(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "no_such_family"}))
    with pytest.raises(ModelUnusableError, match="no_such_family"):
        load(folder)
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 5}))
    with pytest.raises(ModelUnusableError):
        load(folder)


def test_code_in_a_model_folder_is_never_run(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_file": "evil.py"}))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ModelUnusableError, match="evil"):
        load(folder)
    assert not (tmp_path / "ran").exists()
