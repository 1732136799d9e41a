"""What holds for every test: quiet model libraries, no settings or directories of the person who runs them."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Fused kernels are compiled by g++ at first use: 0.4 s in the first token of whichever test comes first.
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")
# More than one BLAS thread per process collapses as soon as two processes compute at once.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

# A slow machine is no failure, and a run must be repeatable in CI.
settings.register_profile("exo", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("exo")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drive the browser last: its driver keeps an event loop running in this thread until the session ends."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(autouse=True)
def own_directories(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test, and each process it starts, has a home of its own; `EXO_*` of the caller's shell are gone."""
    home = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith("EXO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
    return home
