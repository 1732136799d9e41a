"""Which folders are models, and what is known of them."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exo.services.downloads.inventory import CARD_FILE, MODEL_NAME, folder_name, report, scan
from exo.streams.ids import ModelId
from support.services import make_card

CONFIG = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 28,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "quantization": {"bits": 4, "group_size": 64},
}


def make_folder(directory: Path, name: str, *, weights: tuple[str, ...] = ("model.safetensors",), **files: Any) -> Path:
    folder = directory / name
    folder.mkdir(parents=True)
    for weight in weights:
        (folder / weight).write_bytes(b"x" * 100)
    (folder / "config.json").write_text(json.dumps(files.get("config", CONFIG)))
    if "index" in files:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files["index"]}))
    return folder


def test_a_plain_folder_gets_a_card_from_its_config(tmp_path: Path) -> None:
    make_folder(tmp_path, "org--small-4bit")
    (held,) = scan((tmp_path,)).values()
    card = held.card
    assert card.model_id == "org/small-4bit"
    assert (card.n_layers, card.hidden_size, card.key_value_heads, card.head_dim) == (28, 1024, 8, 128)
    assert (card.context_length, card.quantization, card.storage_bytes) == (40960, "4bit", 100)
    assert (card.architecture, card.source) == ("Qwen3ForCausalLM", "folder")
    assert report(held).status == "complete"


def test_a_config_of_a_vision_model_speaks_of_its_text_part(tmp_path: Path) -> None:
    nested = {"model_type": "x", "text_config": {"n_layer": 3, "n_embd": 64, "n_head": 4, "n_positions": 100}}
    make_folder(tmp_path, "nested", config=nested)
    card = scan((tmp_path,))[ModelId("nested")].card
    assert (card.n_layers, card.hidden_size, card.attention_heads, card.head_dim) == (3, 64, 4, 16)
    assert (card.key_value_heads, card.context_length) == (4, 100)


def test_a_folder_with_a_card_is_known_by_it(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "anything")
    card = make_card("org/imported")
    (folder / CARD_FILE).write_text(json.dumps({**msgspec.to_builtins(card), "source_sha256": "abc"}))
    assert scan((tmp_path,))[ModelId("org/imported")].card == card


def test_a_folder_that_lacks_weights_does_not_count(tmp_path: Path) -> None:
    make_folder(tmp_path, "empty", weights=())
    make_folder(tmp_path, "half", weights=("a.safetensors",), index={"x": "a.safetensors", "y": "b.safetensors"})
    make_folder(tmp_path, "whole", weights=("a.safetensors", "b.safetensors"), index={"x": "a.safetensors"})
    (tmp_path / "no-config").mkdir()
    assert set(scan((tmp_path,))) == {"whole"}


def test_hidden_folders_and_files_are_left_alone(tmp_path: Path) -> None:
    make_folder(tmp_path, ".staging")
    (tmp_path / "file").write_text("x")
    assert scan((tmp_path,)) == {}


@pytest.mark.parametrize("content", ["{", '{"weight_map": 7}'])
def test_a_damaged_folder_does_not_hide_the_others(tmp_path: Path, content: str) -> None:
    damaged = make_folder(tmp_path, "damaged")
    (damaged / "model.safetensors.index.json").write_text(content)
    make_folder(tmp_path, "good")
    assert set(scan((tmp_path,))) == {"good"}


def test_the_first_directory_that_holds_a_model_wins(tmp_path: Path) -> None:
    first = make_folder(tmp_path / "a", "same")
    make_folder(tmp_path / "b", "same")
    make_folder(tmp_path / "b", "more")
    held = scan((tmp_path / "missing", tmp_path / "a", tmp_path / "b"))
    assert held[ModelId("same")].folder == first
    assert set(held) == {"same", "more"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_read_only(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "fixed")
    folder.chmod(0o555)
    (held,) = scan((tmp_path,)).values()
    assert report(held).status == "read_only"


def test_a_directory_that_is_said_to_be_read_only_comes_last_and_stays_as_it_is(tmp_path: Path) -> None:
    mine = make_folder(tmp_path / "mine", "same")
    make_folder(tmp_path / "shared", "same")
    make_folder(tmp_path / "shared", "more")
    held = scan((tmp_path / "mine",), read_only=(tmp_path / "shared",))
    assert held[ModelId("same")].folder == mine
    assert report(held[ModelId("same")]).status == "complete"
    assert report(held[ModelId("more")]).status == "read_only"


def test_names_become_folders_and_nothing_else() -> None:
    assert folder_name(ModelId("org/name")) == "org--name"
    for name in ("org/name", "name", "a.b-c_d/E.1"):
        assert MODEL_NAME.match(name)
    for name in ("", "../x", "/x", "a/b/c", "a/../b", "a b", ".hidden", "org/.hidden"):
        assert not MODEL_NAME.match(name)
