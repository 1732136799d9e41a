"""MLX really computes with the library that was loaded before it."""

import os
import subprocess
import sys

import pytest

MULTIPLY = """
import time
from exo.runners.blas import load_blas
report = load_blas()
import mlx.core as mx
left, right = mx.random.normal((512, 512)), mx.random.normal((512, 512))
mx.eval(left @ right)
began = time.process_time()
mx.eval([left @ right + number for number in range(4)])
print(report.name, time.process_time() - began)
"""


def multiply(**environment: str) -> tuple[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", MULTIPLY],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    name, seconds = done.stdout.split()
    return name, float(seconds)


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms bring a fast BLAS")
def test_a_loaded_library_is_several_times_faster_than_the_bundled_one() -> None:
    name, seconds = multiply()
    if name == "bundled":
        pytest.skip("no OpenBLAS on this machine")
    bundled, slow = multiply(EXO_BLAS="bundled")
    assert bundled == "bundled"
    assert slow > 3 * seconds
