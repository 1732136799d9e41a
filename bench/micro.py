"""What single steps cost, without the rest of a node: codec, apply, publish, projections."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.replay import measure_replay, rejection
from bench.target import Result
from exo.streams import codec
from exo.streams.apply import apply
from exo.streams.chunks import Text
from exo.streams.events import Recorded
from exo.streams.state import State

REPEATS = 20_000


def run() -> list[Result]:
    """Measure the parts, then a projection of 100,000 events over a real broker."""
    with tempfile.TemporaryDirectory() as directory:
        replay = asyncio.run(measure_replay(Path(directory)))
    return [*_measure_steps(), *replay]


def _microseconds(step: Callable[[], object]) -> float:
    step()
    started = time.perf_counter()
    for _ in range(REPEATS):
        step()
    return (time.perf_counter() - started) / REPEATS * 1e6


def _measure_steps() -> list[Result]:
    chunk = Text(1, 1234, " hello")
    encoded, event = codec.encode(chunk), codec.encode(rejection(1))
    recorded, state = Recorded(1, rejection(1)), State()
    steps: dict[str, Callable[[], object]] = {
        "encode a token chunk": lambda: codec.encode(chunk),
        "decode a token chunk": lambda: codec.decode_chunk(encoded),
        "decode an event": lambda: codec.decode_event(event, sequence=1),
        "apply an event": lambda: apply(state, recorded),
    }
    return [Result("micro", what, _microseconds(step), "us") for what, step in steps.items()]
