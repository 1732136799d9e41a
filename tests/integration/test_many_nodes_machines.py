"""Machines with something wrong: disk, clock, limits, ports. Each has a finding with a name, no crash and no lie."""

import asyncio
import shutil
import signal
import socket
import time
from functools import partial
from pathlib import Path

import httpx2
import pytest

from support.chat import body_of
from support.clocks import wrong_clock
from support.disks import fill, small_disk
from support.hosts import Lan
from support.many_nodes import CLUSTER_PORT, Member, running_nodes, starting
from support.node import wait_for
from support.replay import check_replay
from support.streams import SLOW, RunningStreams, say

HOUR = 3600


@pytest.mark.timeout(180)
async def test_clocks_an_hour_off_change_nothing(tmp_path: Path) -> None:
    with starting(tmp_path, env=SLOW) as starter:
        ahead = starter.start("--no-worker", env=wrong_clock(tmp_path / "ahead", seconds=HOUR))
        right = starter.start()
        behind = starter.start(env=wrong_clock(tmp_path / "behind", seconds=-HOUR))
        members = starter.members
        assert members.settle() is ahead
        right.place_here()
        instances = list(members.wait_agreement()["instances"])
        assert "3600 s" in (await asyncio.to_thread(right.doctor))["clock"]["message"]
        async with RunningStreams([right, behind]) as streams:
            await asyncio.to_thread(ahead.lose)
            for record in await streams.end():
                record.check_whole()
        await asyncio.to_thread(members.wait_hub, [right, behind])
        await asyncio.to_thread(ahead.start)
        await asyncio.to_thread(members.settle)
        assert list((await check_replay(members))["instances"]) == instances
        # Ages are the reader's own: nobody is an hour old, or not born yet.
        ages = [gauge["age"] for node in right.state()["telemetry"].values() for gauge in node.values()]
        assert all(0 <= age < 60 for age in ages)


async def test_a_thousand_descriptors_are_enough_or_said_not_to_be(tmp_path: Path) -> None:
    with starting(tmp_path, env=SLOW | {"EXO_MAX_CONCURRENT_REQUESTS": "256"}) as starter:
        hub = await asyncio.to_thread(starter.start, prefix=("prlimit", "--nofile=1024:1024"))
        other = await asyncio.to_thread(starter.start)
        members = starter.members
        await asyncio.to_thread(members.settle)
        await asyncio.to_thread(hub.place)
        idle = [socket.create_connection(("127.0.0.1", int(hub.url.rpartition(":")[2]))) for _ in range(950)]
        assert members.wait(lambda: say(other, "others are served") == "others are served", seconds=30, what="service")
        for connection in idle:
            connection.close()
        async with RunningStreams([hub, other], each=50, text="a few words") as streams:
            for record in await streams.end():
                record.check_whole("a few words")
        assert await asyncio.to_thread(members.settle) is hub
        assert "Traceback" not in hub.log()


@pytest.mark.timeout(180)
async def test_a_full_disk_is_named_and_left_behind(tmp_path: Path) -> None:
    with starting(tmp_path, env=SLOW) as starter:
        store = tmp_path / "node0" / "nats"
        hub = await asyncio.to_thread(starter.start, prefix=small_disk(store, megabytes=96))
        other = await asyncio.to_thread(starter.start)
        members = starter.members
        assert await asyncio.to_thread(members.settle) is hub
        await asyncio.to_thread(hub.place)
        async with RunningStreams([hub, other]) as streams:
            hog = await asyncio.to_thread(fill, hub, store)
            await asyncio.to_thread(
                members.wait, lambda: "store_disk_full" in hub.findings(), seconds=10, what="the finding"
            )
            for node in members.running:
                await asyncio.to_thread(members.wait, partial(is_refused, node), seconds=5, what="the refusal")
            for record in await streams.end():
                record.check_whole()
        before = hub.broker_pid()
        hog.unlink()
        freed = time.monotonic()
        await asyncio.to_thread(members.wait, lambda: say(other, "room") == "room", seconds=30, what="service")
        assert time.monotonic() - freed < 10
        assert await asyncio.to_thread(members.settle) is hub
        assert "store_disk_full" not in hub.findings()
        assert hub.broker_pid() != before
        # What ended while nothing could be stored was told again.
        members.wait(lambda: not hub.agreed()["tasks"], seconds=20, what="the end of all requests in State")
        assert sum(map(len, members.wait_agreement()["ended_tasks"]["pages"])) > 2 * 5


def is_refused(node: Member) -> bool:
    """Whether a node says at once that, and why, nothing new is stored."""
    asked = time.monotonic()
    answer = httpx2.post(f"{node.url}/v1/chat/completions", json=body_of("hello") | {"stream": False}, timeout=30)
    assert time.monotonic() - asked < 5
    return answer.status_code == 503 and "the disk under the message store has" in answer.json()["error"]["message"]


async def test_a_deleted_store_is_noticed_and_made_anew(tmp_path: Path) -> None:
    with running_nodes(tmp_path, 2) as members:
        hub, other = members.nodes
        other.place_here()
        instances = list(members.wait_agreement()["instances"])
        shutil.rmtree(hub.data / "nats")
        members.wait(
            lambda: "store_removed" in hub.findings() or hub.state()["lineage"],
            seconds=30,
            what="the finding about the store, or a new session",
        )
        # The server that has lost its files dies as well: State lives on in the nodes.
        broker = hub.broker_pid()
        if broker is not None:
            hub.signal_broker(signal.SIGKILL)
        await asyncio.to_thread(members.settle)
        assert list((await check_replay(members))["instances"]) == instances
        assert say(other, "nothing lost") == "nothing lost"


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, starting(tmp_path / "explicit") as starter:
        port = taken.getsockname()[1]
        refused = starter.launch(f"--cluster-port={port}", alone=True)
        assert ended_with(refused) == 1
        assert str(port) in refused.log()
        assert "Traceback" not in refused.log()
    with Lan(1) as lan, starting(tmp_path / "default", hosts=lan.hosts) as starter:
        host = lan.hosts[0]
        with host.open_listener(CLUSTER_PORT):
            node = starter.start()
            assert node.cluster_port() != CLUSTER_PORT
            assert str(CLUSTER_PORT) in node.log()
            node.place()
            assert say(node, "on another port") == "on another port"


def ended_with(node: Member) -> int:
    assert node.process is not None
    wait_for(lambda: not node.running, seconds=30, what="the end of the process", node=node)
    return node.process.wait()
