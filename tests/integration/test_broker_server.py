"""A real nats-server: started, supervised, stopped; never left behind."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exo.broker.config import ServerSettings
from exo.broker.credentials import Credentials
from exo.broker.errors import BusUnavailableError, PermissionDeniedError, ServerStartError, StoreLockedError
from exo.broker.hub import Hub, HubSettings
from exo.broker.monitor import Monitor, tap
from exo.broker.nats_bus import NatsBus
from exo.broker.policy import ConnectionSettings
from exo.broker.server import NatsServer
from exo.broker.store import read_command_line
from support.nats import CREDENTIALS, another_bus, kill, running_hub, wait_connection, wait_until

# Runs a hub until it is killed; prints the server's pid.
NODE = """
import asyncio, sys
from pathlib import Path
from exo.broker.credentials import Credentials
from exo.broker.hub import Hub, HubSettings

async def main():
    settings = HubSettings(directory=Path(sys.argv[1]), name="node")
    async with Hub(settings, credentials=Credentials("test")) as hub:
        print(hub.server.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def running_node(directory: Path) -> "Generator[tuple[subprocess.Popen[str], int]]":
    """A process with a hub, and its server's pid; the test kills it."""
    command = [sys.executable, "-c", NODE, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as node:
        assert node.stdout is not None
        pid = next((int(line) for line in node.stdout if line.strip().isdigit()), None)
        assert pid is not None, "the node did not come up"
        try:
            yield node, pid
        finally:
            node.kill()


def find_parent(pid: int) -> int:
    found = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(found.stdout)


def is_server(pid: int) -> bool:
    return "nats-server" in read_command_line(pid)


def kill_server(pid: int) -> None:
    """End a server that a failed test left without its shim."""
    if is_server(pid):
        kill(pid)


async def test_it_comes_up_on_ports_of_its_own_and_goes_down(tmp_path: Path) -> None:
    server = NatsServer(ServerSettings(directory=tmp_path, name="test"))
    async with server:
        pid = server.pid
        assert is_server(pid)
        assert server.url.startswith("nats://127.0.0.1:")
        assert (await Monitor(server.monitor_url).health()).healthy
    assert not is_server(pid)
    await server.stop()


async def test_a_dead_server_comes_back_in_place(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        url, pid = hub.server.url, hub.server.pid
        await hub.bus.append("exo.events.node.n1.joined", b"kept")
        lost = asyncio.get_running_loop().time()
        kill(pid)
        await wait_connection(hub.bus, connected=False)
        await wait_connection(hub.bus, connected=True)
        outage = asyncio.get_running_loop().time() - lost
        assert (hub.server.url, hub.server.restarts) == (url, 1)
        assert hub.server.pid != pid
        assert [m.payload for m in await hub.bus.read("EXO_EVENTS", ">")] == [b"kept"]
        # 0.3 s on an idle machine; several tests share this one.
        assert outage < 5


async def test_streams_in_memory_are_back_before_anybody_hears_of_the_connection(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        stored: list[asyncio.Task[int]] = []

        def use(connected: bool) -> None:
            if connected:
                stored.append(asyncio.ensure_future(hub.bus.put("exo_lease", "master", b"me", revision=0, ttl=3)))

        hub.bus.on_connection_change(use)
        kill(hub.server.pid)
        await wait_until(lambda: bool(stored), what="the connection is back")
        assert await stored[0] == 1
        assert (await hub.bus.stream_info("EXO_TOKENS")).messages == 0


async def test_the_node_dies_and_takes_the_server_along(tmp_path: Path) -> None:
    with running_node(tmp_path / "nats") as (_, server):
        assert is_server(server)
    await wait_until(lambda: not is_server(server), what="the server is gone")


async def test_a_leftover_server_is_stopped_before_the_next_start(tmp_path: Path) -> None:
    """Node and shim are killed together, so that nobody is left to stop the server."""
    with running_node(tmp_path / "nats") as (node, server):
        # Held still, lest its supervisor does the work that the next start is to do.
        node.send_signal(signal.SIGSTOP)
        kill(find_parent(server))
    try:
        assert is_server(server)
        async with running_hub(tmp_path) as hub:
            assert not is_server(server)
            assert hub.server.pid != server
    finally:
        kill_server(server)


async def test_a_dead_shim_does_not_leave_two_servers(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        first = hub.server.pid
        assert hub.server._process is not None
        kill(hub.server._process._shim.pid)
        await wait_until(lambda: hub.server.restarts == 1 and hub.server.pid != first, what="a new server")
        await wait_until(lambda: not is_server(first), what="the old one is gone")
        await wait_connection(hub.bus, connected=True)
        await hub.bus.append("exo.events.node.n1.joined", b"x")


async def test_a_stop_right_behind_the_death_of_the_shim_leaves_no_server(tmp_path: Path) -> None:
    server = NatsServer(ServerSettings(directory=tmp_path, name="test"))
    await server.start()
    pid = server.pid
    try:
        assert server._process is not None
        kill(server._process._shim.pid)
        await server.stop()
        assert not is_server(pid)
    finally:
        kill_server(pid)


async def test_a_second_hub_on_one_store_is_refused(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        with pytest.raises(StoreLockedError, match=f"process {os.getpid()}"):
            await Hub(hub.settings, credentials=CREDENTIALS).start()
        await hub.bus.append("exo.events.node.n1.joined", b"x")


async def test_a_taken_port_is_told_with_the_servers_own_words(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        port = int(hub.server.url.rpartition(":")[2])
        settings = HubSettings(directory=tmp_path / "other", name="other", port=port)
        other = Hub(settings, credentials=CREDENTIALS)
        with pytest.raises(ServerStartError, match="address already in use"):
            await other.start()
        # Nothing is left behind: the lock is free again.
        async with running_hub(tmp_path / "other"):
            pass


async def test_only_the_holder_of_the_key_gets_in(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        for seed in ("", "no key at all", Credentials("others").seed("hub")):
            settings = ConnectionSettings(url=hub.server.url, name="stranger", seed=seed)
            with pytest.raises(PermissionDeniedError):
                await NatsBus(settings).open()
        async with another_bus(hub) as bus:
            await bus.flush()


async def test_no_server_is_told_in_time() -> None:
    settings = ConnectionSettings(url="nats://127.0.0.1:9", name="lost", open_timeout=0.3)
    with pytest.raises(BusUnavailableError, match="cannot connect"):
        await NatsBus(settings).open()


async def test_the_log_may_begin_where_another_hub_stopped(tmp_path: Path) -> None:
    async with running_hub(tmp_path, first_sequence=500) as hub:
        info = await hub.bus.stream_info("EXO_EVENTS")
        assert (info.first_sequence, info.last_sequence) == (500, 499)
        assert (await hub.bus.append("exo.events.epoch", b"x")).sequence == 500
        messages = hub.bus.follow("EXO_EVENTS", after=499)
        assert (await anext(messages)).sequence == 500
        await messages.aclose()


async def test_the_monitor_reads_what_the_server_says(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        monitor = Monitor(hub.server.monitor_url)
        await hub.bus.append("exo.events.node.n1.joined", b"x")
        report = await monitor.server()
        assert (report.server_name, report.version) == ("test", hub.server.binary.version)
        (client,) = (await monitor.clients()).connections
        assert client.name == "hub"
        jetstream = await monitor.jetstream()
        assert jetstream.streams == len(await hub.bus.stream_infos())
        assert jetstream.messages == 1
        url = hub.server.monitor_url
    with pytest.raises(BusUnavailableError, match="monitoring"):
        await Monitor(url).server()


async def test_looking_on_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        monitor = Monitor(hub.server.monitor_url)
        before = (await monitor.server()).subscriptions
        looking = tap(hub.bus, "exo.telemetry.>")
        first = asyncio.ensure_future(anext(looking))

        async def subscribed() -> bool:
            return (await monitor.server()).subscriptions == before + 1

        await wait_until(subscribed, what="the subscription")
        await hub.bus.publish("exo.telemetry.n1.memory", b"x")
        assert (await first).payload == b"x"
        await looking.aclose()
        await hub.bus.flush()
        assert (await monitor.server()).subscriptions == before


async def test_a_hung_server_is_killed_and_comes_back_in_place(tmp_path: Path) -> None:
    """As after SIGSTOP: the process is there, its port is open, and it does not answer."""
    async with running_hub(tmp_path) as hub:
        url, pid = hub.server.url, hub.server.pid
        await hub.bus.append("exo.events.node.n1.joined", b"kept")
        os.kill(pid, signal.SIGSTOP)
        await wait_until(lambda: hub.server.restarts == 1 and hub.server.ready, what="another server")
        await wait_connection(hub.bus, connected=True)
        assert hub.server.url == url
        assert hub.server.pid != pid
        assert [m.payload for m in await hub.bus.read("EXO_EVENTS", ">")] == [b"kept"]


async def test_a_hung_server_does_not_keep_a_node_from_stopping(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with running_hub(tmp_path) as hub:
        pid = hub.server.pid
        os.kill(pid, signal.SIGSTOP)
        started = loop.time()
    assert not is_server(pid)
    assert loop.time() - started < 10


async def test_a_removed_store_is_noticed(tmp_path: Path) -> None:
    lost: list[bool] = []
    settings = HubSettings(directory=tmp_path / "nats", name="test")
    async with Hub(settings, credentials=CREDENTIALS, on_store_lost=lambda: lost.append(True)) as hub:
        shutil.rmtree(hub.server.settings.store)
        started = asyncio.get_running_loop().time()
        await wait_until(lambda: bool(lost), what="the loss is noticed")
        assert asyncio.get_running_loop().time() - started < 5
    assert lost == [True]
