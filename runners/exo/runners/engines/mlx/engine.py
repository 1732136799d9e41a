"""The MLX engine, composed: weights from `loader`, words from `language`, steps from `batch`.

Imports MLX only in `load`, after the process was prepared for it. Conforms to `Engine`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from exo.runners.blas import THREADS_VARIABLE, load_blas_once
from exo.runners.engines.engine import LoadProgress, Markers, Prompt, Step
from exo.runners.engines.mlx.files import check_files
from exo.streams.ids import TaskId
from exo.streams.pipe import EngineOptions, Start
from exo.streams.requests import GenerationRequest

if TYPE_CHECKING:
    from exo.runners.engines.mlx.batch import Batch
    from exo.runners.engines.mlx.language import Language

log = structlog.get_logger(__name__)


class NotLoadedError(RuntimeError):
    """Raised when an engine is used before `load` or after `close`."""


class MlxEngine:
    """One model, whole, on this machine's MLX backend."""

    def __init__(self, start: Start) -> None:
        self._path = Path(start.model_path)
        self._card = start.instance.model
        self._options = start.options
        self._context_length = start.instance.context_length
        self._language: Language | None = None
        self._batch: Batch | None = None
        self._measure_peak: Callable[[], int] = int

    @property
    def markers(self) -> Markers:
        return self._speak().markers

    @property
    def context_length(self) -> int:
        return self._context_length

    @property
    def active(self) -> int:
        return len(self._batch) if self._batch is not None else 0

    @property
    def peak_memory(self) -> int:
        return self._measure_peak()

    def load(self, on_progress: LoadProgress) -> None:
        """Read the weights in the form that is fast here.

        Raises `FileNotFoundError` for missing files, `MemoryError` when the limit is too low, and
        `ModelUnusableError` for a model that mlx-lm does not know.
        """
        check_files(self._path)
        prepare_process(self._options)
        import mlx.core as mx

        from exo.runners.engines.mlx.backend import detect_backend
        from exo.runners.engines.mlx.batch import Batch
        from exo.runners.engines.mlx.language import Language
        from exo.runners.engines.mlx.loader import load_model

        backend = detect_backend()
        loaded = load_model(self._path, backend, options=self._options, on_progress=on_progress)
        self._context_length = min(self._context_length or loaded.context_length, loaded.context_length)
        self._language = Language(loaded.tokenizer, loaded.vocabulary_size)
        self._batch = Batch(loaded.model, self._language, backend, options=self._options, defaults=self._card.sampling)
        mx.reset_peak_memory()
        self._measure_peak = mx.get_peak_memory
        log.info("weights loaded", backend=backend, dense=loaded.dense, bytes=loaded.weight_bytes)

    def render(self, request: GenerationRequest) -> Prompt:
        """Apply the chat template and tokenise; thread-safe."""
        return self._speak().render(request)

    def admit(self, task: TaskId, prompt: Prompt, request: GenerationRequest) -> None:
        """Give the request a slot."""
        self._compute().admit(task, prompt, request)

    def step(self) -> list[Step]:
        """Draw one token for each running sequence, and process one piece of the prompts that wait."""
        return self._compute().step()

    def drop(self, task: TaskId) -> None:
        """Free a slot; unknown tasks are ignored."""
        self._compute().drop(task)

    def close(self) -> None:
        """Free the memory; the engine is of no use afterwards."""
        if self._batch is not None:
            self._batch.close()
        self._batch = None
        self._language = None

    def _speak(self) -> "Language":
        if self._language is None:
            raise NotLoadedError
        return self._language

    def _compute(self) -> "Batch":
        if self._batch is None:
            raise NotLoadedError
        return self._batch


def prepare_process(options: EngineOptions) -> None:
    """Set what MLX and transformers read while they are imported."""
    os.environ.setdefault(THREADS_VARIABLE, str(options.blas_threads))
    # A runner loads local folders only; a look at the hub would hang without a network.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    blas = load_blas_once()
    if blas is None:
        return
    if blas.fast:
        log.info("matrix library", name=blas.name, path=blas.path, threads=blas.threads)
    else:
        log.warning("the matrix library is slow", remedy=blas.remedy)
