"""The MLX engine under the suite that every engine passes."""

import pytest

from exo.runners.engines.mlx.engine import MlxEngine
from support.engine_conformance import Build, EngineConformance
from support.engines import make_start
from support.tiny_models import make_tiny_model


class TestMlxConformance(EngineConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def build(cls, tmp_path_factory: pytest.TempPathFactory) -> Build:
        folder = make_tiny_model(tmp_path_factory.mktemp("fluent"), fluent=True)
        return lambda: MlxEngine(make_start(folder))
