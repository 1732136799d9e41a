"""Which of MLX's backends computes here."""

from typing import Literal

import mlx.core as mx

Backend = Literal["MlxMetal", "MlxCuda", "MlxCpu"]


def detect_backend() -> Backend:
    """Give the backend of the default device, by the names of `ModelCard.backends`.

    On a CPU it also turns `mx.compile` off: fusing costs 0.4 s of g++ per kernel and brings nothing.
    """
    if mx.default_device() == mx.Device(mx.cpu):
        mx.disable_compile()
        return "MlxCpu"
    return "MlxMetal" if mx.metal.is_available() else "MlxCuda"
