"""The scaling of rotary embeddings, recovered from a GGUF file. Pure; unknown kinds are refused.

Llama 3.1 and later store only the resulting factor per frequency (`rope_freqs.weight`); MLX wants the
parameters, so the published ones are tried and taken only if they give the stored factors.
"""

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from exo.runners.gguf.blocks import unpack
from exo.runners.gguf.errors import Unsupported
from exo.runners.gguf.families import ROPE_FACTORS
from exo.runners.gguf.source import GgufFile

RopeScaling: TypeAlias = dict[str, str | float]

_OTHER_FORMAT = "get the model in MLX or safetensors form"
# config.json of Llama 3.1, 3.2 and 3.3; `factor` differs and is the largest stored value.
_LOW_FREQUENCY_FACTOR, _HIGH_FREQUENCY_FACTOR, _ORIGINAL_CONTEXT = 1.0, 4.0, 8192


def read_rope_scaling(file: GgufFile, prefix: str, head_dim: int) -> RopeScaling | None:
    """Give config.json's `rope_scaling`, None for plain rotary embeddings."""
    stored = next((t for t in file.tensors if t.name == ROPE_FACTORS), None)
    factor = file.metadata.get(f"{prefix}rope.scaling.factor")
    kind = file.metadata.get(f"{prefix}rope.scaling.type", "none" if factor is None else "linear")
    if stored is not None:
        if kind != "none":
            raise Unsupported(f"rope scaling {kind} with {ROPE_FACTORS}", _OTHER_FORMAT)
        factors = unpack(file.read_rows(stored, np.array([0])), stored.type_name)[0]
        base = file.metadata.get(f"{prefix}rope.freq_base", 10000.0)
        return match_llama3(factors, float(base) if isinstance(base, float) else 0.0, head_dim)
    if kind == "none":
        return None
    if kind != "linear" or not isinstance(factor, float):
        raise Unsupported(f"rope scaling {kind} is not imported", _OTHER_FORMAT)
    return {"type": "linear", "rope_type": "linear", "factor": factor}


def match_llama3(factors: NDArray[np.float32], base: float, head_dim: int) -> RopeScaling:
    """Find the Llama 3 parameters behind factors per frequency, or raise `Unsupported`."""
    scale = float(factors.max())
    expected = compute_llama3_factors(scale, base, head_dim)
    if factors.shape != expected.shape or not np.allclose(factors, expected, rtol=1e-4):
        raise Unsupported(f"{ROPE_FACTORS} does not hold Llama 3 scaling factors", _OTHER_FORMAT)
    return {
        "rope_type": "llama3",
        "factor": scale,
        "low_freq_factor": _LOW_FREQUENCY_FACTOR,
        "high_freq_factor": _HIGH_FREQUENCY_FACTOR,
        "original_max_position_embeddings": _ORIGINAL_CONTEXT,
    }


def compute_llama3_factors(scale: float, base: float, head_dim: int) -> NDArray[np.float32]:
    """Compute what each of the head_dim / 2 frequencies is divided by."""
    wavelengths = 2 * math.pi * base ** (np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    smooth = (_ORIGINAL_CONTEXT / wavelengths - _LOW_FREQUENCY_FACTOR) / (
        _HIGH_FREQUENCY_FACTOR - _LOW_FREQUENCY_FACTOR
    )
    blended = 1 / ((1 - smooth) / scale + smooth)
    factors = np.where(
        wavelengths < _ORIGINAL_CONTEXT / _HIGH_FREQUENCY_FACTOR,
        1.0,
        np.where(wavelengths > _ORIGINAL_CONTEXT / _LOW_FREQUENCY_FACTOR, scale, blended),
    )
    return factors.astype(np.float32)
