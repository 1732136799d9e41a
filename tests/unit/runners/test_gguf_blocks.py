"""The block formats against the `gguf` package, which is ggml's own description of them."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray

from exo.runners.gguf.blocks import BLOCK_LAYOUTS, PACKED_BITS, name_type, pack, unpack


def store(type_name: str) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Random weights (6, 128) as stored bytes, and what they mean."""
    weights = np.random.default_rng(7).normal(size=(6, 128)).astype(np.float32)
    kind = GGMLQuantizationType[type_name]
    stored = quants.quantize(weights, kind)
    return np.ascontiguousarray(stored).view(np.uint8).reshape(6, -1), quants.dequantize(stored, kind)


@pytest.mark.parametrize("type_name", BLOCK_LAYOUTS)
def test_unpacked_weights_equal_the_reference(type_name: str) -> None:
    rows, meaning = store(type_name)
    assert np.array_equal(unpack(rows, type_name), meaning)


@pytest.mark.parametrize("type_name", PACKED_BITS)
def test_packed_weights_mean_the_same_bit_for_bit(type_name: str) -> None:
    rows, meaning = store(type_name)
    packed, bits = pack(rows, type_name), PACKED_BITS[type_name]
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    codes = (packed.weight[..., None] >> shifts & np.uint32(2**bits - 1)).reshape(6, -1, 32)
    scales, biases = (part[..., None].astype(np.float32) for part in (packed.scales, packed.biases))
    assert np.array_equal((codes * scales + biases).reshape(6, -1), meaning)


def test_types_have_the_names_of_ggml() -> None:
    assert {kind.value: kind.name for kind in GGMLQuantizationType if kind.value < 40} == {
        kind.value: name_type(kind.value) for kind in GGMLQuantizationType if kind.value < 40
    }
    assert name_type(999) == "type 999"
