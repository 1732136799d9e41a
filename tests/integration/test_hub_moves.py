"""The hub moves: several clusters in one process, real servers, real cluster ports.

docs/fault-tests.md says which of them were seen to fail with which mechanism switched off.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exo.broker.context import read_address
from exo.broker.credentials import Credentials
from exo.broker.errors import BrokerError, BusUnavailableError
from exo.broker.nats_bus import NatsBus
from exo.broker.store import read_command_line
from exo.streams.ids import NodeId
from exo.streams.layout import EVENTS
from support.clusters import Member, members, pick_ports, wait_agreed
from support.nats import kill, wait_until

FACT = "exo.events.node.{}.joined"


async def append(node: Member, number: int = 1) -> int:
    """Write facts; gives the sequence of the last."""
    sequence = 0
    for _ in range(number):
        sequence = (await node.cluster.bus.append(FACT.format(node.name), b"{}")).sequence
    return sequence


async def wait_applied(sequence: int, *nodes: Member) -> None:
    await wait_until(
        lambda: all(node.standby.position.applied >= sequence for node in nodes), what=f"{sequence} is applied"
    )


def other_of(hub: Member, *nodes: Member) -> Member:
    return next(node for node in nodes if node is not hub)


NODE = """
import asyncio, sys
from pathlib import Path
from support.clusters import Member

async def main():
    node = await Member(Path(sys.argv[1]), "n1").start()
    print(node.address, node.cluster.server_pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def frozen_later(directory: Path) -> Generator[tuple[str, tuple[int, int]]]:
    """A hub in a process of its own: its address, and the pids of node and server."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", NODE, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            lines = (line.split() for line in process.stdout)
            address, server = next(words for words in lines if len(words) == 2 and words[1].isdigit())
            yield address, (process.pid, int(server))
        finally:
            process.kill()


async def test_a_single_local_node_starts_without_grace(tmp_path: Path) -> None:
    node = Member(tmp_path, "n1")
    started = time.monotonic()
    async with members(node):
        # The server itself takes some 0.2 s; a second would be a grace.
        assert time.monotonic() - started < 1
        assert node.cluster.is_hub
        assert node.cluster.hub == "n1"
        await wait_applied(await append(node), node)
        assert node.cluster.report().members[0].role == "hub"


async def test_two_that_start_together_agree_on_one_hub(tmp_path: Path) -> None:
    one, two = pick_ports(2)
    first = Member(tmp_path, "n1", port=one, peers=(f"127.0.0.1:{two}",))
    second = Member(tmp_path, "n2", port=two, peers=(f"127.0.0.1:{one}",))
    async with members(first, second):
        hub = await wait_agreed(first, second)
        assert len(first.standby.begun) + len(second.standby.begun) == 1
        last = await append(other_of(hub, first, second))
        await wait_applied(last, first, second)
        assert {member.node for member in hub.cluster.report().members} == {"n1", "n2"}


async def test_a_killed_server_comes_back_in_place(tmp_path: Path) -> None:
    hub = Member(tmp_path, "n1")
    async with members(hub):
        follower = Member(tmp_path, "n2", peers=(hub.address,))
        async with members(follower):
            await wait_agreed(hub, follower)
            session = hub.cluster.session
            last = await append(hub, 5)
            pid = hub.cluster.server_pid
            assert pid is not None
            kill(pid)
            await wait_until(lambda: not follower.cluster.bus.connected, what="the loss is noticed")
            assert await wait_agreed(hub, follower) is hub
            assert hub.cluster.session == session
            assert await append(follower) == last + 1
            assert hub.standby.begun == [session]


async def test_a_hub_that_stops_hands_over(tmp_path: Path) -> None:
    hub = Member(tmp_path, "n1")
    async with members(hub):
        followers = [Member(tmp_path, name, peers=(hub.address,)) for name in ("n2", "n3")]
        async with members(*followers):
            await wait_agreed(hub, *followers)
            last = await append(hub, 3)
            await wait_applied(last, *followers)
            await hub.stop()
            new = await wait_agreed(*followers)
            assert await append(new) > last
            assert all(node.standby.position.lineage for node in followers)
            # What was handed over is not resumed.
            assert list(hub.directory.glob("sessions/*")) == []
            assert len(list(hub.directory.glob("archive/*"))) == 1


async def test_a_crashed_hub_is_replaced_from_what_was_applied(tmp_path: Path) -> None:
    hub = Member(tmp_path, "n1")
    await hub.start()
    followers = [Member(tmp_path, name, peers=(hub.address,)) for name in ("n2", "n3")]
    async with members(*followers):
        await wait_agreed(hub, *followers)
        last = await append(hub, 10)
        await wait_applied(last, *followers)
        heard: list[bytes] = []
        for node in followers:
            await node.cluster.bus.subscribe("exo.tokens.*.t1", lambda delivery: heard.append(delivery.payload))
        crashed = time.monotonic()
        await hub.crash()
        new = await wait_agreed(*followers)
        assert time.monotonic() - crashed < 5
        first = (await new.cluster.bus.stream_info(EVENTS.name)).first_sequence
        assert first == last + 1
        # Subscriptions came along.
        await new.cluster.bus.publish(f"exo.tokens.{new.name}.t1", b"x")
        await wait_until(lambda: heard == [b"x", b"x"], what="both hear it")


async def test_a_host_that_freezes_is_replaced_and_when_it_wakes_there_is_one_hub(tmp_path: Path) -> None:
    """As with a closed lid: node and server stand still, and no connection closes."""
    with frozen_later(tmp_path) as (address, pids):
        followers = [Member(tmp_path, name, peers=(address,)) for name in ("n2", "n3")]
        async with members(*followers):
            await wait_until(lambda: all(node.cluster.hub == "n1" for node in followers), what="the hub is followed")
            last = await append(followers[0], 5)
            await wait_applied(last, *followers)
            await wait_until(lambda: all(len(node.cluster.peers.reached()) == 2 for node in followers), what="all meet")
            frozen = time.monotonic()
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            new = await wait_agreed(*followers)
            assert time.monotonic() - frozen < 5
            assert await append(new) > last
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)

            def is_found_again() -> bool:
                peer = new.cluster.peers.reached().get(NodeId("n1"))
                return peer is not None and peer.hello.hub == new.name and peer.hello.role == "following"

            await wait_until(is_found_again, what="the one that slept follows")
            assert await wait_agreed(*followers) is new


async def test_two_clusters_that_meet_become_one(tmp_path: Path) -> None:
    first, second = Member(tmp_path, "n1"), Member(tmp_path, "n2")
    third = Member(tmp_path, "n3")
    async with members(first, second):
        assert first.cluster.is_hub
        assert second.cluster.is_hub
        second.cluster.peers.suggest(first.address, source="bootstrap")
        hub = await wait_agreed(first, second)
        loser = other_of(hub, first, second)
        await wait_until(
            lambda: len(list(loser.directory.glob("archive/*"))) == 1, what="the loser's store is archived"
        )
        assert loser.cluster.server_pid is None
        third.cluster.peers.suggest(loser.address, source="bootstrap")
        async with members(third):
            assert await wait_agreed(first, second, third) is hub


async def test_a_node_alone_resumes_its_session(tmp_path: Path) -> None:
    node = Member(tmp_path, "n1")
    async with members(node):
        session = node.cluster.session
        last = await append(node, 3)
    again = Member(tmp_path, "n1")
    async with members(again):
        assert again.cluster.session == session
        assert again.standby.begun == []
        assert await append(again) == last + 1


async def test_a_removed_store_costs_the_session_and_nothing_else(tmp_path: Path) -> None:
    node = Member(tmp_path, "n1")
    async with members(node):
        session, last = node.cluster.session, await append(node, 3)
        await wait_applied(last, node)
        shutil.rmtree(node.directory / "sessions")
        await wait_until(lambda: node.cluster.session != session, what="another session")
        assert await append(node) > last
        assert "store_removed" in {finding.code for finding in node.cluster.report().findings}


async def test_a_hub_that_slept_asks_before_it_serves(tmp_path: Path) -> None:
    hub = Member(tmp_path, "n1")
    async with members(hub):
        follower = Member(tmp_path, "n2", peers=(hub.address,))
        async with members(follower):
            await wait_agreed(hub, follower)
            hub.cluster._note_sleep()
            assert not hub.cluster.bus.connected
            assert await wait_agreed(hub, follower) is hub


async def test_a_master_bus_ends_with_its_hub(tmp_path: Path) -> None:
    hub = Member(tmp_path, "n1")
    await hub.start()
    follower = Member(tmp_path, "n2", peers=(hub.address,))
    async with members(follower):
        await wait_agreed(hub, follower)
        master = await follower.cluster.open_master_bus()
        await master.append("exo.events.master.instance.i1.placed", b"{}")
        await hub.crash()
        await wait_agreed(follower)
        with pytest.raises(BusUnavailableError):
            await master.append("exo.events.master.instance.i1.removed", b"{}")
        async with await follower.cluster.open_master_bus():
            pass
        # Nobody else would have ended it: it would look for its dead server for ever.
        assert master.connection.closed
    with pytest.raises(BrokerError):
        await follower.cluster.open_master_bus()


async def test_beyond_loopback_all_of_it_is_encrypted(tmp_path: Path) -> None:
    keys = Credentials("test", "secret")
    hub = Member(tmp_path, "n1", local=False, keys=keys)
    async with members(hub):
        follower = Member(tmp_path, "n2", peers=(hub.address,), local=False, keys=keys)
        async with members(follower):
            await wait_agreed(hub, follower)
            await wait_applied(await append(follower, 3), hub, follower)
            for node in (hub, follower):
                address = read_address(node.directory)
                assert address is not None
                assert address.url.startswith("tls://")
                async with NatsBus(address.to_settings("cli")) as reader:
                    assert (await reader.stream_info(EVENTS.name)).last_sequence == 4


async def test_new_keys_shut_the_old_ones_out(tmp_path: Path) -> None:
    hub = Member(tmp_path, "n1", local=False)
    async with members(hub):
        follower = Member(tmp_path, "n2", peers=(hub.address,), local=False)
        async with members(follower):
            await wait_agreed(hub, follower)
            session = hub.cluster.session
            secret = Credentials("test", "secret")
            await hub.cluster.rekey(secret)
            assert hub.cluster.session == session
            # It may even have made itself the hub of those with the old key by now.
            await wait_until(lambda: follower.cluster.hub != hub.name, what="the old key is shut out")
            await follower.cluster.rekey(secret)
            assert (await wait_agreed(hub, follower)).cluster.session in {session, follower.cluster.session}
            await asyncio.gather(append(hub), append(follower))


async def test_a_node_with_a_hung_server_stops_in_time(tmp_path: Path) -> None:
    hub = Member(tmp_path, "n1")
    await hub.start()
    pid = hub.cluster.server_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()
    await hub.stop()
    # To ask it first, and to wait for its answer at each step, takes five seconds and more.
    assert time.monotonic() - started < 4
    assert not read_command_line(pid)


async def test_a_hung_server_is_restarted_and_the_session_goes_on(tmp_path: Path) -> None:
    hub = Member(tmp_path, "n1")
    async with members(hub):
        follower = Member(tmp_path, "n2", peers=(hub.address,))
        async with members(follower):
            await wait_agreed(hub, follower)
            session, pid = hub.cluster.session, hub.cluster.server_pid
            last = await append(follower)
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            await wait_until(lambda: hub.cluster.server_pid not in {pid, None}, what="another server")
            assert await wait_agreed(hub, follower) is hub
            assert hub.cluster.session == session
            assert await append(follower) == last + 1
