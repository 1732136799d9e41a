"""The block formats of GGUF tensors that MLX holds without loss, as arrays over rows of bytes.

A Q4_1 block (w = d*q + m) *is* an MLX affine group of 32 at 4 bit; Q4_0 and Q8_0 differ by a bias
that is a power of two times the scale, so their scales and biases stay exact in float16 too.
Formats: ggml-common.h. Pure.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

GROUP_SIZE = 32
"""Weights per scale, in the blocks and in MLX alike."""

BLOCK_LAYOUTS = {"F32": (1, 4), "F16": (1, 2), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q8_0": (32, 34)}
"""Supported types: (weights per block, bytes per block)."""

PACKED_BITS = {"Q4_0": 4, "Q4_1": 4, "Q8_0": 8}

_TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
    17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip


class Packed(msgspec.Struct, frozen=True):
    """Rows in MLX's affine form: w = scale * q + bias for each group of 32 columns.

    `weight` is (rows, columns * bits / 32) uint32, `scales` and `biases` (rows, columns / 32) float16.
    """

    weight: NDArray[np.uint32]
    scales: NDArray[np.float16]
    biases: NDArray[np.float16]


def name_type(number: int) -> str:
    """Give ggml's name of a tensor type."""
    return _TYPE_NAMES.get(number, f"type {number}")


def pack(rows: NDArray[np.uint8], type_name: str) -> Packed:
    """Repack rows of Q4_0, Q4_1 or Q8_0 blocks bit for bit."""
    blocks = _split_blocks(rows, type_name)
    scales = _read_halves(blocks, 0)
    count = rows.shape[0]
    if type_name == "Q8_0":
        unsigned = np.ascontiguousarray(blocks[..., 2:] ^ np.uint8(0x80)).reshape(count, -1)
        return Packed(unsigned.view("<u4"), scales, scales * np.float16(-128))
    nibbles = blocks[..., -16:]
    biases = _read_halves(blocks, 2) if type_name == "Q4_1" else scales * np.float16(-8)
    # A block keeps weights 0-15 in the low halves of its bytes, 16-31 in the high ones; MLX wants
    # neighbours in one byte, the earlier one low.
    low, high = nibbles & np.uint8(0x0F), nibbles >> np.uint8(4)
    ordered = np.concatenate([low, high], axis=-1).reshape(count, -1, 2)
    paired = ordered[..., 0] | (ordered[..., 1] << np.uint8(4))
    return Packed(np.ascontiguousarray(paired).view("<u4"), scales, biases)


def unpack(rows: NDArray[np.uint8], type_name: str) -> NDArray[np.float32]:
    """Compute the weights of rows of any supported type: (rows, columns) float32."""
    if type_name == "F32":
        return np.ascontiguousarray(rows).view("<f4")
    if type_name == "F16":
        return np.ascontiguousarray(rows).view("<f2").astype(np.float32)
    blocks = _split_blocks(rows, type_name)
    scales = _read_halves(blocks, 0)[..., None].astype(np.float32)
    if type_name == "Q8_0":
        weights = scales * blocks[..., 2:].view(np.int8)
    else:
        nibbles = blocks[..., -16:]
        codes = np.concatenate([nibbles & np.uint8(0x0F), nibbles >> np.uint8(4)], axis=-1)
        if type_name == "Q4_1":
            weights = scales * codes + _read_halves(blocks, 2)[..., None].astype(np.float32)
        else:
            weights = scales * (codes.astype(np.float32) - 8)
    return weights.reshape(rows.shape[0], -1)


def _split_blocks(rows: NDArray[np.uint8], type_name: str) -> NDArray[np.uint8]:
    return rows.reshape(rows.shape[0], -1, BLOCK_LAYOUTS[type_name][1])


def _read_halves(blocks: NDArray[np.uint8], at: int) -> NDArray[np.float16]:
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")[..., 0]
