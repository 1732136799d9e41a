"""The frames between a node and its runner processes.

One frame is a 4-byte big-endian length and one JSON message. The node writes `ToRunner` to the
runner's standard input and reads `FromRunner` from the runner's standard output.
"""

from typing import Literal

import msgspec

from exo.streams.chunks import Chunk
from exo.streams.ids import TaskId
from exo.streams.instances import Instance, RunnerStatus, Shard
from exo.streams.requests import GenerationRequest

MAX_FRAME = 64 * 1024 * 1024
"""Bytes; a longer frame is a fault of the sender."""
LENGTH_BYTES = 4
HEARTBEAT = 1.0
"""Seconds between two `Beat`s of a living runner."""

EngineName = Literal["mlx", "scripted"]


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a runner serves.

    `max_batch` requests run at once, `max_queue` more may wait. `prefill_step` is in tokens,
    0 leaves it to the engine. `dense_weights` None lets the loader pick what is fast.
    """

    engine: EngineName
    max_batch: int = 16
    max_queue: int = 256
    prefill_step: int = 0
    blas_threads: int = 1
    dense_weights: bool | None = None
    memory_limit: int = 0
    """Bytes that the shard may take; 0 for no limit."""
    script: dict[str, float] = {}
    """Speed and faults of the scripted engine, see exo.runners.engines.fake."""


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """Always the first frame: what to load. `model_path` is a directory, empty for `scripted`."""

    instance: Instance
    shard: Shard
    model_path: str
    options: EngineOptions


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """Answer a request. `time_limit` is in ms from its arrival, 0 for none; a higher `priority` waits less."""

    task: TaskId
    attempt: int
    request: GenerationRequest
    time_limit: int = 0
    priority: int = 0


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Drop a request at the next step. A cancel that comes before its request counts too."""

    task: TaskId
    code: str = "cancelled"
    message: str = "the request was cancelled"


class CountTokens(msgspec.Struct, frozen=True, kw_only=True, tag="count"):
    """Render and tokenise without generating; answered by `Counted` with the same `call`."""

    call: int
    request: GenerationRequest


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """Finish running requests for up to `grace` seconds, then exit with status 0."""

    grace: float = 0


ToRunner = Start | Generate | Cancel | CountTokens | Stop


class Beat(msgspec.Struct, frozen=True, kw_only=True, tag="beat"):
    """A sign of life from a thread of its own: engine steps done so far and requests at work."""

    steps: int
    active: int
    queued: int
    generated_tokens: int
    prompt_tokens: int


class StatusChanged(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """The runner moved on in its life."""

    status: RunnerStatus


class Emitted(msgspec.Struct, frozen=True, kw_only=True, tag="emitted"):
    """All chunks of one engine step."""

    chunks: tuple[tuple[TaskId, Chunk], ...]


class Counted(msgspec.Struct, frozen=True, kw_only=True, tag="counted"):
    """Answer to `CountTokens`; on refusal `code` and `message` are set and `tokens` is 0."""

    call: int
    tokens: int
    code: str = ""
    message: str = ""


FromRunner = Beat | StatusChanged | Emitted | Counted
