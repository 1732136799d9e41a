"""Everything that the services of one node need to be told, as one frozen value.

`ops/up.py` fills it from flags, environment and config file; services read it and nothing else.
"""

import sys
from pathlib import Path

import msgspec

from exo.streams.ids import BootId, NodeId


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How runners serve; see `exo.streams.pipe.EngineOptions`."""

    max_batch: int = 16
    max_queue: int = 256
    prefill_step: int = 0
    blas_threads: int = 1
    dense_weights: bool | None = None
    """None: dense where that is fast and the instance was placed with room for it."""
    script: dict[str, float] = {}


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One node. `model_directories` are searched in order; the first one takes new models.

    `read_only_directories` are searched after them and never written to. `memory_budget` is what this
    node and its models may take together, in bytes, in place of what the machine says; 0 asks it.
    """

    node: NodeId
    boot: BootId
    name: str
    version: str
    model_directories: tuple[Path, ...]
    data_directory: Path
    read_only_directories: tuple[Path, ...] = ()
    cluster: str = ""
    """The name that a person gave the cluster. Empty stands for the one it has by itself, whatever version gave it:
    what a node knows outlives an update."""
    memory_budget: int = 0
    macmon: str = ""
    """The program that reads a Mac's GPU and power; empty looks for it on a Mac."""
    api_port: int = 0
    addresses: tuple[str, ...] = ()
    backends: tuple[str, ...] = ("MlxCpu",)
    worker: bool = True
    offline: bool = False
    max_retries: int = 3
    """Starts of a runner that fail before its instance is removed."""
    engine: EngineSettings = EngineSettings()
    runner_command: tuple[str, ...] = (sys.executable, "-m", "exo.runners")
    convert_command: tuple[str, ...] = (sys.executable, "-m", "exo.runners.convert")
