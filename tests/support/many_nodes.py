"""Clusters of real `exo up` processes, on loopback or on hosts of a LAN, looked at from outside only.

A `Member` is one node with everything that belongs to its machine: it can be lost, frozen or robbed of its
broker. `Members` is the cluster: what all nodes say, and whether they say the same.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import httpx2
import psutil

from support.hosts import Host
from support.node import ALONE, STOP_SECONDS, NodeProcess, wait_for

EXO = Path(sys.executable).with_name("exo")
CLUSTER = version("exo")
"""What a cluster is called that nobody gave a name."""
CLUSTER_PORT = 52414
NATS_PORT = 52413
"""On hosts, which have their ports for themselves."""


class Member(NodeProcess):
    """One node of a cluster, and the machine it stands for."""

    def __init__(
        self, data: Path, *arguments: str, env: dict[str, str] | None = None, host: Host | None = None
    ) -> None:
        super().__init__(data, *arguments, env=env)
        self.host = host
        self.id = ""
        if host is not None:
            self.prefix = host.namespace.enter

    @property
    def name(self) -> str:
        return self.data.name

    def reach(self, url: str) -> str:
        self.id = str(json.loads((self.data / "node.json").read_bytes())["node_id"])
        return f"http://{self.host.open_way(int(url.rpartition(':')[2]))}" if self.host else url

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # What it says.

    def get(self, path: str, *, timeout: float = 10) -> Any:
        return httpx2.get(f"{self.url}{path}", timeout=timeout).raise_for_status().json()

    def agreed(self) -> dict[str, Any]:
        """Give State alone: what every node of the cluster says alike."""
        state = self.state()
        del state["telemetry"]
        return state

    def report(self) -> dict[str, Any]:
        """Give how this node stands with the others, as it sees it."""
        return self.get("/v1/cluster")["report"]

    def cluster_port(self) -> int:
        return int(self.report()["port"])

    def findings(self) -> dict[str, dict[str, Any]]:
        """Give what is wrong, by code."""
        return {finding["code"]: finding for finding in self.report()["findings"]}

    def online(self) -> set[str]:
        """Give the ids of the nodes that are up, as this one knows."""
        return {node["id"] for node in self.state()["nodes"].values() if node["online"]}

    def doctor(self) -> dict[str, dict[str, Any]]:
        """Give what `exo doctor` says on this machine, by subject; of several about one, the last."""
        return {finding["subject"]: finding for finding in json.loads(self.command("doctor", "--json"))}

    def command(self, *arguments: str) -> str:
        """Run an `exo` command on the machine of this node."""
        command = [*self.prefix, str(EXO), *arguments, "--data-dir", str(self.data)]
        environment = {**os.environ, **self.env}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert done.returncode in {0, 1}, f"{command}: {done.stderr}"
        return done.stdout

    def place_here(self, model: str = "exo/scripted") -> str:
        """Place one more copy of a model on this node, wait until it is ready, give the instance's id."""
        placement = self.get(f"/instance/placement?model_id={model}")
        text = json.dumps(placement)
        (chosen,) = next(iter(placement.values()))["shardAssignments"]["nodeToRunner"]
        body = {"instance": json.loads(text.replace(chosen, self.id))}
        answer = httpx2.post(f"{self.url}/instance", json=body, timeout=30)
        assert answer.status_code == 200, answer.text
        instance = str(answer.json()["instance_id"])
        wait_for(lambda: self.is_up(instance), seconds=60, what=f"{model} ready on {self.name}", node=self)
        return instance

    def is_up(self, instance: str) -> bool:
        """Whether all runners of an instance are ready."""
        runners = [runner for runner in self.state()["runners"].values() if runner["instance"] == instance]
        return bool(runners) and all(runner["status"]["type"] == "ready" for runner in runners)

    # What happens to it.

    def keep_port(self) -> None:
        """Listen for the others where it does now when it is started again, as a machine outside of tests would."""
        self.arguments = (*self.arguments, f"--cluster-port={self.cluster_port()}")

    def processes(self) -> list[psutil.Process]:
        """Give all of its processes: the node, its broker with the shim, its runners."""
        with suppress(psutil.NoSuchProcess):
            node = psutil.Process(self.pid)
            return [node, *node.children(recursive=True)]
        return []

    def _signal_all(self, number: signal.Signals) -> list[psutil.Process]:
        processes = self.processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return processes

    def lose(self) -> None:
        """Lose the machine: all processes at once, and on a host first the cable, so that nobody is told."""
        assert self.process is not None
        if self.host is not None:
            self.host.unplug()
        _, alive = psutil.wait_procs(self._signal_all(signal.SIGKILL), timeout=STOP_SECONDS)
        self.process.wait(STOP_SECONDS)
        assert not alive, f"survived SIGKILL: {alive}"

    def sleep(self) -> None:
        """Put the machine to sleep: no process of it runs, nothing is closed."""
        self._signal_all(signal.SIGSTOP)

    def wake(self) -> None:
        """Wake it up."""
        self._signal_all(signal.SIGCONT)

    def signal_broker(self, number: signal.Signals) -> int:
        """Send a signal to its nats-server, give the pid."""
        broker = self.broker_pid()
        assert broker is not None, self.log()
        psutil.Process(broker).send_signal(number)
        return broker

    def kill_node(self) -> None:
        """Kill the node process alone; its children notice by themselves."""
        self.kill()


class Members:
    """All nodes of a cluster that ever started; those that run are asked."""

    def __init__(self, nodes: Sequence[Member]) -> None:
        self.nodes = list(nodes)

    def __getitem__(self, number: int) -> Member:
        return self.nodes[number]

    @property
    def running(self) -> list[Member]:
        return [node for node in self.nodes if node.running]

    def logs(self) -> str:
        return "\n".join(f"--- {node.name} ({node.id})\n{node.log()[-4000:]}" for node in self.nodes)

    def wait(self, probe: Callable[[], Any], *, seconds: float, what: str) -> Any:
        """Poll until `probe` gives something true; an answer that does not come counts as false."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(httpx2.TransportError, httpx2.HTTPStatusError):
                if value := probe():
                    return value
            time.sleep(0.05)
        raise AssertionError(f"no {what} within {seconds} s\n{self.logs()}")

    def ask(self, question: Callable[[Member], Any], *, of: Sequence[Member] | None = None) -> list[Any]:
        """Ask all nodes at once."""
        asked = self.running if of is None else of
        with ThreadPoolExecutor(len(asked)) as pool:
            return list(pool.map(question, asked))

    def find_hub(self, of: Sequence[Member] | None = None) -> Member | None:
        """Give the node that all of them follow as hub, in one session and under one master; None while they do not.

        The master is another node than the hub after the hub's node hung, for as long as that one does well.
        """
        asked = self.running if of is None else of
        views = self.ask(lambda node: (node.report(), node.agreed()), of=asked)
        said = {(report["hub"], report["session"], state["session"], state["master"]) for report, state in views}
        if len(said) != 1:
            return None
        hub, session, folded, master = said.pop()
        by_id = {node.id: node for node in asked}
        return by_id.get(hub) if session == folded and master in by_id else None

    def wait_hub(self, of: Sequence[Member] | None = None, *, seconds: float = 30) -> Member:
        """Wait for one hub, the same for all."""
        return self.wait(lambda: self.find_hub(of), seconds=seconds, what="one hub for all")

    def wait_online(self, expected: Sequence[Member], *, seconds: float = 30) -> None:
        """Wait until exactly these are up, in the eyes of each of them."""
        ids = {node.id for node in expected}
        self.wait(
            lambda: all(seen == ids for seen in self.ask(Member.online, of=expected)),
            seconds=seconds,
            what=f"agreement that {sorted(ids)} are up",
        )

    def find_agreement(self, of: Sequence[Member] | None = None) -> dict[str, Any] | None:
        """Give State when it is the same on all of them now."""
        first, *others = self.ask(Member.agreed, of=of)
        return first if all(state == first for state in others) else None

    def wait_agreement(self, of: Sequence[Member] | None = None, *, seconds: float = 20) -> dict[str, Any]:
        """Wait until State is the same on all of them, and give it."""
        return self.wait(lambda: self.find_agreement(of), seconds=seconds, what="the same State on all nodes")

    def settle(self, expected: Sequence[Member] | None = None, *, seconds: float = 40) -> Member:
        """Wait until the nodes that run are one cluster again: one hub, all up, one State. Gives the hub."""
        expected = self.running if expected is None else expected
        hub = self.wait_hub(expected, seconds=seconds)
        self.wait_online(expected, seconds=seconds)
        self.wait_agreement(expected)
        return hub

    def settle_without(self, *gone: Member, seconds: float = 40) -> Member:
        """Wait until all but these are one cluster."""
        return self.settle([node for node in self.running if node not in gone], seconds=seconds)

    def stop(self) -> None:
        """Stop all in good order, at once; a node that does not is killed, and fails the test."""
        for node in self.running:
            node.wake()
        if self.running:
            self.ask(_stop_or_kill)


def _stop_or_kill(node: Member) -> None:
    try:
        node.stop()
    except subprocess.TimeoutExpired:
        node.lose()
        raise AssertionError(f"{node.name} did not stop in {STOP_SECONDS} s\n{node.log()}") from None


class Starter:
    """Starts the nodes of one cluster below a directory, each told of those that run already."""

    def __init__(self, directory: Path, *, env: dict[str, str] | None = None, hosts: Sequence[Host] = ()) -> None:
        self.members = Members([])
        self._directory = directory
        self._env = env or {}
        self._hosts = hosts

    def launch(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        alone: bool = False,
        prefix: Sequence[str] = (),
    ) -> Member:
        """Start a node and wait for nothing; `alone` tells it of nobody, `prefix` stands before its command."""
        number = len(self.members.nodes)
        known = [] if alone or self._hosts else [node for node in self.members.running if node.url]
        joins = [word for node in known for word in ("--join", f"127.0.0.1:{node.cluster_port()}")]
        place = () if self._hosts else ("--local", "--cluster-port", "0")
        # Empty ones count as not set: on a host of its own a node is as it comes.
        ports = {"EXO_NATS_PORT": str(NATS_PORT), **dict.fromkeys(ALONE, "")} if self._hosts else {}
        node = Member(
            self._directory / f"node{number}",
            *place,
            *joins,
            "--name",
            f"node{number}",
            *arguments,
            env={**ports, **self._env, **(env or {})},
            host=self._hosts[number] if self._hosts else None,
        )
        node.prefix += tuple(prefix)
        self.members.nodes.append(node)
        node.launch()
        return node

    def start(self, *arguments: str, env: dict[str, str] | None = None, prefix: Sequence[str] = ()) -> Member:
        """Start a node and wait until it is ready."""
        return self.launch(*arguments, env=env, prefix=prefix).await_up()

    def start_many(self, count: int, *arguments: str) -> Self:
        """Start several at the same moment and wait until all are ready."""
        nodes = [self.launch(*arguments) for _ in range(count)]
        for node in nodes:
            node.await_up()
        return self


@contextmanager
def starting(directory: Path, *, env: dict[str, str] | None = None, hosts: Sequence[Host] = ()) -> Generator[Starter]:
    """Give a starter whose nodes are stopped in good order at the end of the block."""
    starter = Starter(directory, env=env, hosts=hosts)
    try:
        yield starter
    finally:
        starter.members.stop()


@contextmanager
def running_nodes(
    directory: Path,
    count: int,
    *,
    env: dict[str, str] | None = None,
    hosts: Sequence[Host] = (),
    first: Sequence[str] = (),
) -> Generator[Members]:
    """Run a settled cluster of `count` nodes; the first, started alone with the flags `first`, is its hub."""
    with starting(directory, env=env, hosts=hosts) as starter:
        starter.start(*first)
        starter.start_many(count - 1)
        starter.members.settle()
        yield starter.members
