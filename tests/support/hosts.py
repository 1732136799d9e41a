"""Computers on one LAN, made of network namespaces: real sockets, real multicast, cables that can be pulled.

A `Lan` is a switch in a namespace of its own and a cable to each `Host`. Needs `ip`, `unshare` and
`nsenter`, and either root or a kernel that allows user namespaces; without them a test fails with the
reason. Every namespace hangs on a process that ends it when the test ends, however that does.
"""

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from support.proxy import Proxy

_ANCHOR = Path(__file__).with_name("host_anchor.py")
_STOP_SECONDS = 30
_NETWORK = "10.83.0"
_BRIDGE = "switch"


class Namespace:
    """A network namespace. `owner` is one whose user namespace it shares, when the tests do not run as root."""

    def __init__(self, owner: "Namespace | None" = None) -> None:
        new = ["unshare", "--net"] if os.geteuid() == 0 or owner else ["unshare", "--user", "--map-root-user", "--net"]
        self.owner = owner
        inside = owner.as_root if owner else ()
        self._anchor = subprocess.Popen(
            [*inside, *new, sys.executable, "-I", "-S", str(_ANCHOR)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert _stream(self._anchor.stdout).readline() == "ready\n", (
            "these tests make network namespaces, which needs root or user namespaces: run them as root, or allow "
            f"`unshare --user --map-root-user --net`. It said: {_stream(self._anchor.stderr).read()}"
        )

    @property
    def as_root(self) -> tuple[str, ...]:
        """A command that runs another with the rights over this namespace, but outside of it."""
        if os.geteuid() == 0:
            return ()
        root = self.owner or self
        return ("nsenter", f"--user=/proc/{root._anchor.pid}/ns/user", "--preserve-credentials")

    @property
    def step_in(self) -> tuple[str, ...]:
        """A command that runs another inside, for a process that has the rights already. It keeps its pid."""
        return ("nsenter", f"--net=/proc/{self._anchor.pid}/ns/net")

    @property
    def enter(self) -> tuple[str, ...]:
        """A command of the test that runs another inside. It keeps its pid."""
        return (*self.as_root, *self.step_in)

    @property
    def pid(self) -> int:
        return self._anchor.pid

    def configure(self, *lines: str) -> None:
        """Run commands of `ip`, one per line, all or none of them failing."""
        done = subprocess.run(
            [*self.enter, "ip", "-batch", "-"], input="\n".join(lines), text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, f"{lines}: {done.stderr}"

    def stop(self) -> None:
        """End everything that runs inside; safe to call twice."""
        _stream(self._anchor.stdin).close()
        self._anchor.wait(_STOP_SECONDS)
        for stream in (self._anchor.stdout, self._anchor.stderr):
            _stream(stream).close()


class Host:
    """One computer: its own loopback, its own ports, one network card `eth0`."""

    def __init__(self, switch: Namespace, *, number: int) -> None:
        self.name = f"host{number}"
        self.address = f"{_NETWORK}.{number}"
        self.port = f"port{number}"
        self.namespace = Namespace(switch.owner or switch)
        self._switch = switch
        self._lines = ExitStack()
        switch.configure(
            f"link add {self.port} type veth peer name eth0 netns {self.namespace.pid}",
            f"link set {self.port} master {_BRIDGE} up",
        )
        self.namespace.configure(
            "link set lo up",
            f"address add {self.address}/24 dev eth0",
            "link set eth0 up",
            # What is on no network here is nowhere; without a route, multicast has no way out.
            "route add default dev eth0",
        )

    def run(self, *command: str, timeout: float = 30) -> str:
        """Run a command here to its end, give what it said."""
        done = subprocess.run(
            [*self.namespace.enter, *command], text=True, capture_output=True, timeout=timeout, check=False
        )
        assert done.returncode == 0, f"{self.name}: {command}: {done.stderr}"
        return done.stdout

    def open_way(self, port: int, *, host: str = "127.0.0.1") -> str:
        """Give an address on the test's own loopback that leads to `host:port` in here, past all cables."""
        return self._lines.enter_context(Proxy(f"{host}:{port}", enter=self.namespace.enter)).address

    @contextmanager
    def open_listener(self, port: int) -> Generator[None]:
        """Let a program here listen on a port of all interfaces."""
        with Proxy("127.0.0.1:1", listen=f"0.0.0.0:{port}", listen_in=self.namespace.enter):
            yield

    def unplug(self) -> None:
        """Pull the cable: the card loses its carrier."""
        self._switch.configure(f"link set {self.port} down")

    def plug(self) -> None:
        """Put the cable back."""
        self._switch.configure(f"link set {self.port} up")

    def lose(self) -> None:
        """Lose the computer: first its cable, so that no farewell gets out, then all that runs in it."""
        self.unplug()
        self.stop()

    def stop(self) -> None:
        """End everything that runs here; safe to call twice."""
        self._lines.close()
        self.namespace.stop()


class Lan:
    """`count` hosts on one switch; a context manager. `beside` is another one that is entered from this."""

    def __init__(self, count: int, *, beside: "Lan | None" = None) -> None:
        with ExitStack() as stack:
            self.switch = Namespace(beside.switch if beside else None)
            stack.callback(self.switch.stop)
            # Snooping learns who wants which multicast, and lets the first packets of a new group go nowhere.
            self.switch.configure(f"link add {_BRIDGE} type bridge mcast_snooping 0", f"link set {_BRIDGE} up")
            self.hosts: list[Host] = []
            for number in range(1, count + 1):
                self.hosts.append(Host(self.switch, number=number))
                stack.callback(self.hosts[-1].stop)
            self._stack = stack.pop_all()

    def part(self, *groups: Sequence[Host]) -> None:
        """Divide the switch: each group hears only itself, and no card loses its carrier."""
        for number, group in enumerate(groups):
            bridge = f"part{number}"
            self.switch.configure(f"link add {bridge} type bridge mcast_snooping 0", f"link set {bridge} up")
            self.switch.configure(*(f"link set {host.port} master {bridge}" for host in group))

    def heal(self) -> None:
        """Make it one switch again, with every cable in it."""
        ports = [(f"link set {host.port} master {_BRIDGE}", f"link set {host.port} up") for host in self.hosts]
        self.switch.configure(*(line for pair in ports for line in pair))
        known = self.switch_links()
        self.switch.configure(*(f"link del {name}" for name in known if name.startswith("part")))

    def switch_links(self) -> list[str]:
        """Give the names of the switch's links."""
        command = [*self.switch.enter, "ip", "-oneline", "link"]
        lines = subprocess.check_output(command, text=True).splitlines()
        return [line.split(": ")[1].partition("@")[0] for line in lines]

    def filter_multicast(self) -> None:
        """Let no multicast through, like many a wireless access point; everything else passes."""
        self.switch.configure(*(f"link set {host.port} type bridge_slave mcast_flood off" for host in self.hosts))

    def stop(self) -> None:
        """End all hosts, then the switch."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
