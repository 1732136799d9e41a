"""A node under measurement: its processes, told apart, with their CPU seconds and resident bytes."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from support.node import NodeProcess, running_node


@dataclass(frozen=True)
class Usage:
    """CPU seconds used so far by each part of a node."""

    node: float
    broker: float
    runner: float

    def since(self, before: "Usage") -> "Usage":
        """Give what was used after `before`."""
        return Usage(self.node - before.node, self.broker - before.broker, self.runner - before.runner)


def read_usage(node: NodeProcess) -> Usage:
    """Read the CPU seconds of a node's processes now."""
    brokers = [process for process in node.children() if process.name() == "nats-server"]
    return Usage(
        node=_seconds(psutil.Process(node.pid)),
        broker=sum(map(_seconds, brokers)),
        runner=sum(map(_seconds, node.children("exo.runners"))),
    )


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def resident_bytes(node: NodeProcess) -> int:
    """Give the resident bytes of all processes of a node but its runners."""
    runners = {process.pid for process in node.children("exo.runners")}
    processes = [psutil.Process(node.pid), *node.children()]
    return sum(process.memory_info().rss for process in processes if process.pid not in runners)


@contextmanager
def measured_node(*arguments: str, env: dict[str, str] | None = None) -> Generator[NodeProcess]:
    """Run a node in a fresh directory."""
    with tempfile.TemporaryDirectory() as directory, running_node(Path(directory), *arguments, env=env) as node:
        yield node
