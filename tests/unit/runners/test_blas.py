"""The choice of a matrix library, in processes of their own: it can be made only once."""

import json
import os
import subprocess
import sys

import msgspec
import pytest

from exo.runners.blas import BlasReport

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other platforms bring a fast BLAS")


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *code.split(" ", 1)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_report_names_a_library_or_a_remedy() -> None:
    done = run("-m exo.runners.blas")
    report = msgspec.json.decode(done.stdout, type=BlasReport)
    assert report.fast == (report.remedy == "")
    if report.name == "openblas":
        assert report.threads == 1
        assert report.configuration.startswith("OpenBLAS")
        assert report.path.startswith("/")
    else:
        assert "install OpenBLAS" in report.remedy


def test_the_bundled_one_can_be_asked_for() -> None:
    report = json.loads(run("-m exo.runners.blas", EXO_BLAS="bundled").stdout)
    assert (report["name"], report["remedy"]) == ("bundled", "unset EXO_BLAS")


@pytest.mark.parametrize(
    ("path", "reason"), [("/no/such/libopenblas.so", "cannot open shared object"), ("libc.so.6", "does not export")]
)
def test_a_named_library_that_does_not_serve_is_an_error(path: str, reason: str) -> None:
    done = run("-m exo.runners.blas", EXO_BLAS=path)
    assert done.returncode == 1
    assert f"EXO_BLAS={path}" in done.stderr
    assert reason in done.stderr


def test_after_mlx_it_is_too_late() -> None:
    done = run("-c import mlx.core; from exo.runners.blas import load_blas; load_blas()")
    assert "too late" in done.stderr
