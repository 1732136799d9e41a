"""Our reader against files that the `gguf` package wrote, and against broken ones."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from exo.runners.gguf.errors import FileDamaged, Unsupported
from exo.runners.gguf.source import GgufFile
from support.gguf_files import CHAT_TEMPLATE, MERGES, PIECES, random_weights, write_gguf


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", random_weights(), types="Q8_0")


def test_metadata_and_tensors_are_read_back(model: Path) -> None:
    with GgufFile(model) as file:
        metadata = file.metadata
        tensors = {tensor.name: tensor for tensor in file.tensors}
        norm = file.read_rows(tensors["output_norm.weight"], np.array([0])).view("<f4")
    assert metadata["tokenizer.ggml.tokens"] == PIECES
    assert metadata["tokenizer.ggml.merges"] == MERGES
    assert metadata["tokenizer.chat_template"] == CHAT_TEMPLATE
    assert metadata["llama.attention.head_count"] == 4
    assert metadata["llama.rope.freq_base"] == 10000.0
    assert tensors["blk.1.ffn_down.weight"].shape == (64, 96)
    assert tensors["blk.1.ffn_down.weight"].type_name == "Q8_0"
    assert np.array_equal(norm[0], random_weights()["output_norm.weight"])


def test_a_file_cut_anywhere_is_called_damaged(model: Path) -> None:
    whole = model.read_bytes()
    cut = model.with_name("cut.gguf")
    for length in [*range(200), *range(200, len(whole) - 4096, len(whole) // 97), len(whole) - 4096]:
        cut.write_bytes(whole[:length])
        with pytest.raises(FileDamaged):
            GgufFile(cut)


def test_something_else_is_called_no_gguf(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04" + b"\0" * 100)
    with pytest.raises(FileDamaged, match=r"other\.gguf is not a GGUF file"):
        GgufFile(other)


def test_an_old_version_is_refused(model: Path) -> None:
    content = bytearray(model.read_bytes())
    content[4] = 1
    model.write_bytes(content)
    with pytest.raises(Unsupported, match="version 1"):
        GgufFile(model)


def test_the_hash_is_that_of_the_file(model: Path) -> None:

    seen: list[int] = []
    with GgufFile(model) as file:
        assert file.hash_content(seen.append, block=1000) == hashlib.sha256(model.read_bytes()).hexdigest()
    assert seen[-1] == model.stat().st_size
