"""Backends are known without loading MLX."""

import subprocess
import sys

import pytest

from exo.ops.backends import find_backends


@pytest.mark.parametrize(
    ("installed", "platform", "backends"),
    [
        (["mlx", "mlx-metal"], "darwin", ("MlxMetal", "MlxCpu")),
        (["mlx", "mlx-cpu"], "linux", ("MlxCpu",)),
        (["mlx", "mlx-cuda-12"], "linux", ("MlxCuda", "MlxCpu")),
        (["mlx", "mlx_cuda_13"], "linux", ("MlxCuda", "MlxCpu")),
        ([], "linux", ("MlxCpu",)),
    ],
)
def test_what_is_installed_decides(installed: list[str], platform: str, backends: tuple[str, ...]) -> None:
    assert find_backends(installed, platform=platform) == backends


def test_asking_loads_no_model_library() -> None:
    code = "import sys; from exo.ops.backends import find_backends; find_backends(); sys.exit('mlx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
