"""Hosts on a LAN that find each other by multicast, lose each other, and become one cluster again.

Every node here listens on all interfaces of its host, with TLS, as at a user's home.
docs/fault-tests.md says which of these were seen to fail with their mechanism switched off, and how.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.hosts import Lan
from support.many_nodes import CLUSTER_PORT, NATS_PORT, Member, Members, running_nodes, starting
from support.proxy import Proxy
from support.replay import check_replay
from support.slow_line import SlowLine
from support.streams import SLOW, RunningStreams, TimedStream, say

LONGEST_MOVE = 5
BUSY = 2


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan(3) as lan:
        yield lan


def tasks_by_node(member: Member) -> dict[str, str]:
    return {task["id"]: task["node"] for task in member.state()["tasks"].values()}


def task_of(record: TimedStream) -> str:
    return record.frames[0]["id"].removeprefix("chatcmpl-")


def dropped(state: dict[str, Any]) -> set[str]:
    return {item["id"] for merge in state["merges"] for item in merge["dropped"]}


@pytest.mark.timeout(180)
async def test_two_sides_of_a_partition_serve_and_become_one(tmp_path: Path, lan: Lan) -> None:
    with running_nodes(tmp_path, 3, env=SLOW, hosts=lan.hosts) as members:
        one, two, three = members.nodes
        instances = [await asyncio.to_thread(node.place_here) for node in (one, three)]
        before = members.wait_agreement()
        async with RunningStreams([two, three], each=4) as streams:
            worked_on = await asyncio.to_thread(tasks_by_node, two)
            await asyncio.to_thread(lan.part, lan.hosts[:2], lan.hosts[2:])
            alone = await asyncio.to_thread(members.wait_hub, [three])
            assert alone is three
            assert await asyncio.to_thread(members.wait_hub, [one, two]) is one
            sides = await asyncio.to_thread(members.ask, lambda node: say(node, f"here is {node.name}"))
            assert sides == [f"here is {node.name}" for node in members.nodes]
            await asyncio.to_thread(lan.heal)
            await streams.end()
        await asyncio.to_thread(members.settle)
        state = await check_replay(members)
        check_sides(streams.by_node[two], worked_on, near=one.id, gone=dropped(state))
        check_sides(streams.by_node[three], worked_on, near=three.id, gone=dropped(state))
        # More nodes, and a session that never broke: that side stays what it was.
        assert (state["session"], list(state["instances"])) == (before["session"], instances)
        assert state["master"] == one.id
        assert [say(node, "one again") for node in members.nodes] == ["one again"] * 3


def check_sides(records: list[TimedStream], worked_on: dict[str, str], *, near: str, gone: set[str]) -> None:
    """What ran on one side alone is whole; what ran across ends once, whole or with the reason in State."""
    for record in records:
        if worked_on[task_of(record)] == near or not record.errors:
            record.check_whole()
        else:
            assert [error["code"] for error in record.errors] == ["cluster_merged"]
            assert record.endings() == 1
            assert task_of(record) in gone


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_a_long_partition_forgets_nothing_on_either_side(tmp_path: Path, lan: Lan) -> None:
    with running_nodes(tmp_path, 3, hosts=lan.hosts) as members:
        one, two, three = members.nodes
        instance = await asyncio.to_thread(three.place_here)
        lan.part(lan.hosts[:2], lan.hosts[2:])
        await asyncio.to_thread(members.wait_online, [one, two], seconds=90)
        # What is out of reach is not forgotten; one more is placed on this side.
        assert say(two, "on this side") == "model_loading"
        another = await asyncio.to_thread(two.place_here)
        sides = await asyncio.to_thread(members.ask, lambda node: say(node, f"here is {node.name}"))
        assert sides == [f"here is {node.name}" for node in members.nodes]
        lan.heal()
        await asyncio.to_thread(members.settle, seconds=60)
        state = await check_replay(members)
        assert list(state["instances"]) == [instance, another]
        assert [say(node, "one again") for node in members.nodes] == ["one again"] * 3


@pytest.mark.timeout(180)
async def test_the_host_of_the_hub_is_lost(tmp_path: Path, lan: Lan) -> None:
    with running_nodes(tmp_path, 3, env=SLOW, hosts=lan.hosts, first=["--no-worker"]) as members:
        hub, worker, other = members.nodes
        await asyncio.to_thread(worker.place_here)
        before = members.wait_agreement()
        async with RunningStreams([worker, other], each=10) as streams:
            await asyncio.to_thread(hub.lose)
            for record in await streams.end():
                record.check_whole()
                assert record.longest_pause() < LONGEST_MOVE * BUSY
        await asyncio.to_thread(members.wait_hub, [worker, other])
        assert list(members.wait_agreement([worker, other])["instances"]) == list(before["instances"])
        lan.heal()
        await asyncio.to_thread(hub.start)
        await asyncio.to_thread(members.settle)
        assert list((await check_replay(members))["instances"]) == list(before["instances"])
        assert say(hub, "here again") == "here again"


@pytest.mark.full
@pytest.mark.timeout(240)
async def test_a_cable_that_is_pulled_and_put_back(tmp_path: Path, lan: Lan) -> None:
    """Of a follower, then of the hub: the card loses its carrier, which the kernel tells every program."""
    with running_nodes(tmp_path, 3, hosts=lan.hosts) as members:
        await asyncio.to_thread(members[1].place_here)
        instances = list(members.wait_agreement()["instances"])
        for number in (2, 0):
            lan.hosts[number].unplug()
            others = [node for node in members.nodes if node is not members[number]]
            await asyncio.to_thread(members.wait_hub, others)
            await asyncio.to_thread(members.wait_hub, [members[number]])
            lan.hosts[number].plug()
            await asyncio.to_thread(members.settle)
            assert list((await check_replay(members))["instances"]) == instances


@pytest.mark.timeout(180)
async def test_late_heartbeats_evict_nobody(tmp_path: Path) -> None:
    with SlowLine([CLUSTER_PORT, NATS_PORT]) as line:
        hosts = [line.left, line.right]
        with starting(tmp_path, env=SLOW, hosts=hosts) as starter:
            hub = starter.start("--no-discovery")
            far = starter.start("--no-discovery", "--join", line.left.address)
            members = starter.members
            assert members.settle() is hub
            far.place_here()
            before = members.wait_agreement()
            async with RunningStreams([hub, far]) as streams:
                line.each(lambda proxy: proxy.slow(delay=0.1, jitter=0.3))
                await asyncio.to_thread(watch, members, seconds=3)
                line.each(lambda proxy: proxy.lose(0.1, stall=0.8))
                await asyncio.to_thread(watch, members, seconds=3)
                line.each(Proxy.heal)
                # A second of silence is no death either.
                line.each(Proxy.cut)
                await asyncio.sleep(1)
                line.each(Proxy.heal)
                for record in await streams.end():
                    record.check_whole()
            line.each(Proxy.reset)
            assert members.settle() is hub
            after = members.wait_agreement()
            assert {key: after[key] for key in ("session", "epoch", "instances", "removed_instances")} == {
                key: before[key] for key in ("session", "epoch", "instances", "removed_instances")
            }
            assert {node["since"] for node in after["nodes"].values()} == {
                node["since"] for node in before["nodes"].values()
            }


def watch(members: Members, *, seconds: float) -> None:
    """Hold all nodes to be up, in the eyes of the hub, for so long."""
    everybody = {node.id for node in members.nodes}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert members[0].online() == everybody, members.logs()


def test_a_lan_without_multicast_says_so_and_takes_addresses(tmp_path: Path) -> None:
    with Lan(2) as lan:
        lan.filter_multicast()
        with starting(tmp_path, hosts=lan.hosts) as starter:
            one, two = starter.start(), starter.start()
            members = starter.members
            members.wait(lambda: "no_other_node" in two.findings(), seconds=10, what="the finding")
            assert f"--join {lan.hosts[1].address}" in two.findings()["no_other_node"]["remedy"]
            (zeroconf,) = (method for method in two.report()["methods"] if method["method"] == "zeroconf")
            assert (zeroconf["state"], zeroconf["seen"]) == ("running", 0)
            assert two.online() == {two.id}
            assert two.stop() == 0
            two.arguments = (*two.arguments, "--join", f"/ip4/{lan.hosts[0].address}/tcp/{CLUSTER_PORT}")
            two.start()
            assert members.settle() is one


def test_a_node_without_any_network_serves_by_itself(tmp_path: Path) -> None:
    with Lan(2) as lan, starting(tmp_path, hosts=lan.hosts) as starter:
        alone, bare = lan.hosts
        alone.namespace.configure("link del eth0")
        node = starter.start()
        node.place()
        assert say(node, "nobody else here") == "nobody else here"
        assert node.doctor()["network"]["severity"] == "warning"

        # Not even loopback: nothing can be served, which is said in a line, not in a traceback.
        bare.namespace.configure("link del eth0", "link set lo down")
        dead = starter.launch()
        assert dead.process is not None
        assert dead.process.wait(60) == 1
        assert "127.0.0.1" in dead.log()
        assert "Traceback" not in dead.log()
