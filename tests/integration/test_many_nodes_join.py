"""Nodes come, go and come back: who is there, who is hub, and what runs where, in the eyes of every node."""

import asyncio
import socket
import time
from pathlib import Path

import pytest

from support.many_nodes import Member, Members, running_nodes, starting
from support.node import wait_for
from support.replay import check_replay
from support.streams import SLOW, RunningStreams, say


async def test_one_two_three_and_five_nodes_are_one_cluster(tmp_path: Path) -> None:
    with starting(tmp_path) as starter:
        first = starter.start()
        assert starter.members.settle() is first
        instance = first.place()
        for more in (1, 1, 2):
            launched = [starter.launch() for _ in range(more)]
            newcomers = {node.await_up(ready=False).id for node in launched}
            starter.members.wait(lambda ids=newcomers: ids <= first.online(), seconds=5, what="the newcomers")
            assert starter.members.settle() is first
        members = starter.members
        assert len(members.running) == 5
        assert [say(node, f"said at {node.name}") for node in members.running] == [
            f"said at {node.name}" for node in members.running
        ]
        # One server for all, and nobody took the model from where it was.
        assert [node.broker_pid() is not None for node in members.nodes] == [True, False, False, False, False]
        state = await check_replay(members)
        assert list(state["instances"]) == [instance]
        assert {member["node"] for report in members.ask(Member.report) for member in report["members"]} == {
            node.id for node in members.nodes
        }


def free_ports(count: int) -> list[int]:
    """Give ports that nobody listens on, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports


async def test_nodes_that_start_together_agree_on_one_hub(tmp_path: Path) -> None:
    ports = free_ports(3)
    with starting(tmp_path) as starter:
        nodes = [
            starter.launch(
                f"--cluster-port={port}",
                *(f"--join=127.0.0.1:{other}" for other in ports if other != port),
                alone=True,
            )
            for port in ports
        ]
        for node in nodes:
            node.await_up()
        hub = starter.members.settle()
        assert [node for node in nodes if node.broker_pid() is not None] == [hub]
        hub.place()
        assert [say(node, "one cluster") for node in nodes] == ["one cluster"] * 3
        state = await check_replay(starter.members)
        # Two hubs that met again would have left a merge.
        assert state["merges"] == []


async def test_a_hub_that_leaves_hands_over_and_comes_back(tmp_path: Path) -> None:
    with running_nodes(tmp_path, 3, env=SLOW, first=["--no-worker"]) as members:
        hub, worker, other = members.nodes
        instance = worker.place_here()
        before = members.wait_agreement()
        async with RunningStreams([worker, other]) as streams:
            assert await asyncio.to_thread(hub.stop) == 0
            for record in await streams.end():
                record.check_whole()
        successor = await asyncio.to_thread(members.settle_without, hub)
        assert successor in {worker, other}
        state = await check_replay(members)
        assert state["session"] != before["session"]
        assert before["session"] in state["lineage"]
        assert list(state["instances"]) == [instance]
        gone = state["nodes"][hub.id]
        assert (gone["online"], gone["cause"]) == (False, "left")
        assert abs(gone["since"] / 1000 - time.time()) < 120

        await asyncio.to_thread(hub.start)
        assert await asyncio.to_thread(members.settle) is successor
        assert_never_placed_on(hub, asked=worker)


def assert_never_placed_on(node: Member, *, asked: Member) -> None:
    for _ in range(3):
        asked.place()
    shards = [shard for instance in asked.state()["instances"].values() for shard in instance["shards"]]
    assert len(shards) == 4
    assert node.id not in {shard["node"] for shard in shards}
    facts = asked.state()["nodes"][node.id]["facts"]
    assert facts["worker"] is False
    assert node.id in asked.state()["telemetry"]


def test_a_node_that_is_drained_gets_nothing_new(tmp_path: Path) -> None:
    with running_nodes(tmp_path, 2) as members:
        stays, drained = members.nodes
        drained.place_here()
        stays.command("drain", drained.id)
        members.wait(lambda: stays.state()["nodes"][drained.id]["draining"], seconds=10, what="draining in State")
        stays.place()
        newest = list(stays.state()["instances"].values())[-1]
        assert [shard["node"] for shard in newest["shards"]] == [stays.id]
        assert say(drained, "still a gateway") == "still a gateway"


@pytest.mark.full
@pytest.mark.timeout(240)
async def test_a_lost_node_leaves_a_record_and_returns_to_its_models(tmp_path: Path) -> None:
    with running_nodes(tmp_path, 3) as members:
        hub, lost, other = members.nodes
        instance = lost.place_here()
        await asyncio.to_thread(lost.lose)
        await asyncio.to_thread(members.wait_online, [hub, other], seconds=60)
        gone = (await check_replay(members))["nodes"][lost.id]
        assert (gone["online"], gone["cause"]) == (False, "timed_out")
        # Its model waits for it and is not forgotten; who asks is told so.
        assert say(other, "served") == "model_loading"
        await asyncio.to_thread(lost.start)
        await asyncio.to_thread(members.settle)
        wait_for(lambda: lost.serves("exo/scripted"), seconds=60, what="all runners ready", node=lost)
        state = await check_replay(members)
        assert list(state["instances"]) == [instance]
        assert say(lost, "back again") == "back again"


@pytest.mark.full
@pytest.mark.timeout(240)
def test_nodes_come_and_go_while_others_answer(tmp_path: Path) -> None:
    with running_nodes(tmp_path, 2) as members:
        hub, guest = members.nodes
        hub.place_here()
        resting = count_events(members, hub)
        for _ in range(5):
            assert guest.stop() == 0
            guest.start()
            members.settle()
            assert say(guest, "here again") == "here again"
        # A visit is a handful of events, not a storm.
        assert count_events(members, hub) - resting < 5 * 20


def count_events(members: Members, node: Member) -> int:
    members.wait_agreement()
    return int(node.state()["applied"])
