"""The MLX engine under the suite that every engine passes, with real weights."""

from pathlib import Path

import pytest

from exo.runners.engines.mlx.engine import MlxEngine
from support.engine_conformance import Build, EngineConformance
from support.engines import make_start


class TestMlxConformance(EngineConformance):
    foreign_text = "Repeat exactly: 世界 😀 ñandú"

    @pytest.fixture(scope="class")
    @classmethod
    def build(cls, starter_model: Path) -> Build:
        return lambda: MlxEngine(make_start(starter_model, context_length=512))
