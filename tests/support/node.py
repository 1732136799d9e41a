"""A real `exo up` process in a directory of its own, looked at from outside only: HTTP and process ids."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx2
import psutil

T = TypeVar("T")

START_SECONDS = 60
ALONE = {"EXO_LOCAL": "true", "EXO_CLUSTER_PORT": "0"}
"""On loopback only: nodes of tests must not meet each other, nor anybody else's on this network."""
STOP_SECONDS = 30


class NodeProcess:
    """One running node. `data` survives a restart; `url` may change with each."""

    def __init__(self, data: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.data = data
        self.arguments = arguments
        self.env = env or {}
        self.prefix: tuple[str, ...] = ()
        """Put before the command: enters another host, or sets a limit. It must `exec`, so that the pid stays."""
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *, ready: bool = True) -> Self:
        """Start `exo up` and wait until it answers, and until `/ready` says so."""
        self.launch()
        return self.await_up(ready=ready)

    def launch(self) -> None:
        """Start `exo up` and wait for nothing."""
        self.data.mkdir(parents=True, exist_ok=True)
        command = [str(Path(sys.executable).with_name("exo")), "up", "--data-dir", str(self.data), "--port", "0"]
        log = (self.data / "stderr.txt").open("ab")
        self.process = subprocess.Popen(
            [*self.prefix, *command, *self.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **ALONE, **self.env},
            start_new_session=True,
        )
        log.close()

    def await_up(self, *, ready: bool = True) -> Self:
        """Wait for what `launch` has started."""
        wait_for(self._find_url, seconds=START_SECONDS, what="the node's address", node=self)
        if ready:
            wait_for(self.is_ready, seconds=START_SECONDS, what="/ready", node=self)
        return self

    def _find_url(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        try:
            described = json.loads((self.data / "node.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return False
        if described["pid"] != self.process.pid:
            return False
        self.url = self.reach(str(described["api_url"]))
        return True

    def reach(self, url: str) -> str:
        """Give the address under which this process gets to `url` of the node."""
        return url

    def is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/ready", timeout=5).status_code == 200
        except httpx2.TransportError:
            return False

    def log(self) -> str:
        return (self.data / "stderr.txt").read_text(errors="replace")[-8000:]

    def state(self) -> dict[str, Any]:
        return httpx2.get(f"{self.url}/state", timeout=10).raise_for_status().json()

    def place(self, model: str = "exo/scripted") -> str:
        """Place a model, wait until it is ready, give the instance's id."""
        answer = httpx2.post(f"{self.url}/place_instance", json={"model_id": model}, timeout=30)
        assert answer.status_code == 200, answer.text
        self.await_ready(model)
        return next(iter(self.instances_of(model)))

    def await_ready(self, model: str, *, seconds: float = 60) -> None:
        wait_for(lambda: self.serves(model), seconds=seconds, what=f"{model} ready", node=self)

    def instances_of(self, model: str) -> dict[str, Any]:
        instances = self.state()["instances"]
        return {key: value for key, value in instances.items() if value["model"]["model_id"] == model}

    def serves(self, model: str) -> bool:
        state = self.state()
        statuses = [
            runner["status"]["type"]
            for runner in state["runners"].values()
            if state["instances"][runner["instance"]]["model"]["model_id"] == model
        ]
        return bool(statuses) and all(status == "ready" for status in statuses)

    def children(self, *words: str) -> list[psutil.Process]:
        """Give the living descendants whose command line holds all words."""
        found: list[psutil.Process] = []
        for process in psutil.Process(self.pid).children(recursive=True):
            try:
                line = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if all(word in line for word in words):
                found.append(process)
        return found

    def runner_pid(self) -> int:
        """Give the pid of the one runner process."""
        (runner,) = self.children("exo.runners")
        return runner.pid

    def broker_pid(self) -> int | None:
        """Give the pid of nats-server itself, not of the shim above it; None while it is down."""
        return next((process.pid for process in self.children() if process.name() == "nats-server"), None)

    def kill(self) -> None:
        """End the node process as a crash would, children left to notice by themselves."""
        assert self.process is not None
        descendants = psutil.Process(self.pid).children(recursive=True)
        self.process.kill()
        self.process.wait(STOP_SECONDS)
        gone, alive = psutil.wait_procs(descendants, timeout=STOP_SECONDS)
        for orphan in alive:
            orphan.kill()
        assert not alive, f"left running after a crash: {alive}, gone: {gone}"

    def stop(self) -> int:
        """Ask for a stop in good order, give the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)


def wait_for(probe: Callable[[], T], *, seconds: float, what: str, node: NodeProcess | None = None) -> T:
    """Call `probe` until it gives something true; fails with the node's log after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = probe()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"no {what} within {seconds} s\n{node.log() if node else ''}")


@contextmanager
def running_node(data: Path, *arguments: str, env: dict[str, str] | None = None) -> Generator[NodeProcess]:
    """Run a node for the length of a block; it must stop in good order, or be dead already."""
    node = NodeProcess(data, *arguments, env=env)
    try:
        yield node.start()
    finally:
        if node.process is not None and node.process.poll() is None:
            try:
                node.stop()
            except subprocess.TimeoutExpired:
                node.process.kill()
                raise
