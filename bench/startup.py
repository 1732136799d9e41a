"""How long a node takes to be ready, and what it costs while nobody asks it anything."""

import tempfile
import time
from pathlib import Path

from bench.processes import measured_node, read_usage, resident_bytes
from bench.target import Result
from support.node import NodeProcess

IDLE_SECONDS = 30


def run() -> list[Result]:
    """Measure the warm start and the idle node."""
    return [_measure_start(), *_measure_idle()]


def _measure_start() -> Result:
    times: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(4):
            node = NodeProcess(Path(directory))
            started = time.perf_counter()
            node.start()
            times.append(time.perf_counter() - started)
            node.stop()
    return Result(
        "startup", "exo up to /ready, warm, best of 3", min(times[1:]), "s", "at most", 2, note=f"cold {times[0]:.2f} s"
    )


def _measure_idle() -> list[Result]:
    with measured_node() as node:
        time.sleep(10)
        before, started = read_usage(node), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        used, elapsed = read_usage(node).since(before), time.perf_counter() - started
        share = (used.node + used.broker) / elapsed
        note = f"node {used.node / elapsed:.2%}, broker {used.broker / elapsed:.2%}"
        resident = resident_bytes(node) / 1e6
    return [
        Result("startup", "idle CPU of node and broker, share of one core", share * 100, "%", "at most", 1, note=note),
        Result("startup", "idle resident memory without runners", resident, "MB", "at most", 150),
    ]
