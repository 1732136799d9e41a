"""The LAN and the lines that the tests of many nodes stand on are what they claim to be."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import psutil
import pytest

from support.hosts import Host, Lan
from support.node import wait_for
from support.proxy import Proxy
from support.slow_line import SlowLine

ECHO = """
import socket, sys, threading
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print(listener.getsockname()[1], flush=True)
def serve(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])) as connection:
    connection.sendall(b"hello")
    print(connection.recv(5).decode())
"""
HEAR = """
import socket, struct, sys
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind(("", 5353))
membership = socket.inet_aton("224.0.0.251") + socket.inet_aton(sys.argv[1])
heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
heard.settimeout(float(sys.argv[2]))
print("listening", flush=True)
print(heard.recv(100).decode())
"""
CALL = """
import socket, sys
caller = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
caller.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
caller.sendto(b"anybody here", ("224.0.0.251", 5353))
"""
PORT = 4000
SOON = 0.4


class Server:
    """An echo server in a host or on the test's own loopback."""

    def __init__(self, host: Host | None = None) -> None:
        prefix = host.namespace.enter if host else ()
        address, port = (host.address, PORT) if host else ("127.0.0.1", 0)
        command = [*prefix, sys.executable, "-I", "-S", "-c", ECHO, address, str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def echo() -> Iterator[Server]:
    with Server() as server:
        yield server


def ask(host: Host, server: Host, *, timeout: float = 5) -> str:
    return host.run(sys.executable, "-I", "-S", "-c", ASK, server.address, str(PORT), str(timeout)).strip()


def is_cut_off(host: Host, server: Host) -> bool:
    try:
        ask(host, server, timeout=SOON)
    except AssertionError as error:
        return "timed out" in str(error) or "No route" in str(error) or "unreachable" in str(error)
    return False


def hears(listener: Host, caller: Host, *, timeout: float) -> bool:
    """Whether a multicast of the one gets to the other."""
    command = [*listener.namespace.enter, sys.executable, "-I", "-S", "-c", HEAR, listener.address, str(timeout)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as hearing:
        assert hearing.stdout is not None
        assert hearing.stdout.readline() == "listening\n"
        caller.run(sys.executable, "-I", "-S", "-c", CALL, caller.address)
        return hearing.stdout.read() == "anybody here\n"


def test_hosts_are_cut_off_and_joined_again() -> None:
    with Lan(3) as lan, Server(lan.hosts[1]):
        one, two, three = lan.hosts
        assert ask(one, two) == ask(three, two) == "hello"
        assert hears(two, one, timeout=5)

        lan.part([one, two], [three])
        assert ask(one, two) == "hello"
        assert is_cut_off(three, two)
        lan.heal()
        assert ask(three, two) == "hello"

        two.unplug()
        assert is_cut_off(one, two)
        assert "NO-CARRIER" in two.run("ip", "link", "show", "eth0")
        lan.heal()
        assert ask(one, two) == "hello"

        lan.filter_multicast()
        assert not hears(two, one, timeout=SOON)
        assert ask(one, two) == "hello"
        with socket.create_connection(("127.0.0.1", way(two)), timeout=5) as connection:
            connection.sendall(b"past all cables")
            assert connection.recv(100) == b"past all cables"


def way(host: Host) -> int:
    return int(host.open_way(PORT, host=host.address).rpartition(":")[2])


def test_hosts_go_with_the_test_that_made_them() -> None:
    script = """
import subprocess, sys, time
from support.hosts import Lan
lan = Lan(1)
sleeper = subprocess.Popen([*lan.hosts[0].namespace.enter, "sleep", "1000"], start_new_session=True)
print(sleeper.pid, lan.hosts[0].namespace.pid, lan.switch.pid, flush=True)
time.sleep(1000)
"""
    environment = {**os.environ, "PYTHONPATH": "tests"}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment) as maker:
        assert maker.stdout is not None
        pids = [int(pid) for pid in maker.stdout.readline().split()]
        assert len(pids) == 3
        maker.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(map(lives, pids)), seconds=10, what="the end of all of its processes")


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_proxy_carries_delays_stalls_and_is_cut(echo: Server) -> None:
    with Proxy(f"127.0.0.1:{echo.port}") as proxy, connect(proxy) as connection:
        large = os.urandom(3_000_000)
        connection.sendall(large[:1_000_000])
        assert receive(connection, 1_000_000) == large[:1_000_000]

        proxy.slow(delay=0.1, jitter=0.05)
        assert 0.2 <= round_trip(connection) < 1
        proxy.heal()
        assert round_trip(connection) < 0.1
        proxy.lose(1, stall=0.15)
        assert round_trip(connection) >= 0.3

        proxy.heal()
        proxy.cut()
        connection.sendall(b"into the dark")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        connection.settimeout(5)
        proxy.heal()
        assert receive(connection, 13) == b"into the dark"


def test_a_proxy_resets_and_refuses(echo: Server) -> None:
    with Proxy(f"127.0.0.1:{echo.port}") as proxy:
        with connect(proxy) as connection:
            round_trip(connection)
            proxy.reset()
            assert is_reset(connection)
        with connect(proxy) as connection:
            assert round_trip(connection) < 1
        proxy.refuse()
        with connect(proxy) as connection:
            assert is_reset(connection)
        proxy.heal()
        with connect(proxy) as connection:
            assert round_trip(connection) < 1
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(10) == b""


def test_a_slow_line_is_all_that_two_hosts_have() -> None:
    with SlowLine([PORT]) as line, Server(line.left):
        assert ask(line.right, line.left) == "hello"
        line.each(lambda proxy: proxy.slow(delay=0.2))
        started = time.monotonic()
        assert ask(line.right, line.left) == "hello"
        assert time.monotonic() - started > 0.4
        line.each(Proxy.cut)
        with pytest.raises(AssertionError, match="timed out"):
            ask(line.right, line.left, timeout=SOON)


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5)


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, f"ended after {len(data)} of {size} bytes"
        data += piece
    return data


def round_trip(connection: socket.socket) -> float:
    started = time.monotonic()
    connection.sendall(b"there and back")
    assert receive(connection, 14) == b"there and back"
    return time.monotonic() - started


def is_reset(connection: socket.socket) -> bool:
    try:
        return connection.recv(10) != b""
    except ConnectionResetError:
        return True
