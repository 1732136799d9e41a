"""Builds the engine that a `Start` asks for; imports only that one."""

from exo.runners.engines.engine import Engine
from exo.streams.pipe import Start


def build_engine(start: Start) -> Engine:
    """Give an engine that has not loaded yet."""
    match start.options.engine:
        case "scripted":
            from exo.runners.engines.fake import ScriptedEngine

            return ScriptedEngine(start)
        case "mlx":
            from exo.runners.engines.mlx.engine import MlxEngine

            return MlxEngine(start)
