"""Which MLX backends this machine can compute with, by what is installed; MLX itself is never loaded.

`exo up` says so when the node joins; placement matches it with what a model's card allows.
"""

import sys
from collections.abc import Iterable
from importlib import metadata


def find_backends(installed: Iterable[str] | None = None, *, platform: str = sys.platform) -> tuple[str, ...]:
    """Give the backends, fastest first. `installed` are names of distributions, by default those of this Python.

    The CPU is always among them: `exo/scripted` runs without any MLX, and a missing one is the
    doctor's to report.
    """
    if platform == "darwin":
        return ("MlxMetal", "MlxCpu")
    names = (one.name for one in metadata.distributions()) if installed is None else installed
    if any(name.lower().replace("_", "-").startswith("mlx-cuda") for name in names):
        return ("MlxCuda", "MlxCpu")
    return ("MlxCpu",)
