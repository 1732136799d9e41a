"""Nodes that are stopped: one by one, all at once, with answers under way, and with a broker that hangs.

docs/fault-tests.md says without which mechanisms they were seen to fail.
"""

import asyncio
import signal
import time
from pathlib import Path

import httpx2
import pytest

from support.many_nodes import Member, Members, running_nodes, starting
from support.node import wait_for
from support.streams import SLOW, RunningStreams, say

STOP_SECONDS = 10
"""What a stop may take, whatever hangs."""
LONG = " ".join(f"word{number}" for number in range(120))
"""Takes longer than the seconds that HTTP gives its responses at the end."""


def stop_all(nodes: list[Member]) -> dict[str, float]:
    """Send SIGTERM to all at the same moment; gives how long each took, and holds each to end well."""
    began = time.monotonic()
    for node in nodes:
        assert node.process is not None
        node.process.send_signal(signal.SIGTERM)
    took: dict[str, float] = {}
    for node in nodes:
        assert node.process is not None
        assert node.process.wait(30) == 0, node.log()
        took[node.name] = time.monotonic() - began
    return took


def check_quick(took: dict[str, float], members: Members) -> None:
    assert max(took.values()) < STOP_SECONDS, f"{took}\n{members.logs()}"


async def test_two_stopped_at_once_leave_the_third_as_hub(tmp_path: Path) -> None:
    with starting(tmp_path, env=SLOW | {"EXO_SHUTDOWN_GRACE": "5"}) as starter:
        # One after the other: of those that follow, the one that is up longest would be the successor.
        hub, second, third = (starter.start() for _ in range(3))
        members = starter.members
        assert members.settle() is hub
        second.place_here()
        members.wait_agreement()
        # It has work to end, and follows the hub for longer than that is there.
        async with RunningStreams([second], each=1):
            took = await asyncio.to_thread(stop_all, [hub, second])
        assert took[second.name] < STOP_SECONDS, f"{took}\n{members.logs()}"
        assert members.settle() is third
        assert "this node is the hub" not in second.log()


def test_all_stopped_at_once_lose_nothing(tmp_path: Path) -> None:
    with starting(tmp_path) as starter:
        starter.start()
        starter.start_many(2)
        members = starter.members
        members.settle()
        members[2].place_here()
        before = members.wait_agreement()
        for node in members.nodes:
            # On loopback the system picked the ports; a machine keeps its own over a restart.
            node.arguments = (*node.arguments, "--cluster-port", str(node.cluster_port()))
        check_quick(stop_all(members.nodes), members)
        for node in members.nodes:
            node.launch()
        for node in members.nodes:
            node.await_up(ready=False)
        members.settle()
        after = members.wait_agreement()
        assert set(after["instances"]) == set(before["instances"])
        members[2].await_ready("exo/scripted")
        assert say(members[0], "still here") == "still here"


async def test_a_hub_that_is_stopped_breaks_no_stream_of_others(tmp_path: Path) -> None:
    with running_nodes(tmp_path, 3, env=SLOW, first=["--no-worker"]) as members:
        members[1].place_here()
        hub = members.wait_hub()
        others = [node for node in members.nodes if node is not hub]
        async with RunningStreams(others, each=3) as streams:
            check_quick(await asyncio.to_thread(stop_all, [hub]), members)
            records = await streams.end()
        for record in records:
            record.check_whole()
        assert members.settle() is not hub


async def test_an_answer_gets_its_grace_at_the_api_of_the_node_that_stops(tmp_path: Path) -> None:
    """The runner is another node's: nothing but this node's HTTP is in the way of the answer."""
    env = SLOW | {"EXO_SHUTDOWN_GRACE": "20"}
    with running_nodes(tmp_path, 2, env=env) as members:
        hub = members.wait_hub()
        (other,) = [node for node in members.nodes if node is not hub]
        other.place_here()
        async with RunningStreams([hub], each=2, text=LONG) as streams:
            assert hub.process is not None
            hub.process.send_signal(signal.SIGTERM)
            for record in await streams.end():
                record.check_whole(LONG)
        assert await asyncio.to_thread(hub.process.wait, STOP_SECONDS) == 0
        assert "waiting for requests to end" in hub.log()


async def test_a_node_that_stops_gets_nothing_new(tmp_path: Path) -> None:
    env = SLOW | {"EXO_SHUTDOWN_GRACE": "20"}
    with running_nodes(tmp_path, 2, env=env) as members:
        one, two = members.nodes
        one.place_here()
        async with RunningStreams([one], each=1) as streams:
            assert one.process is not None
            one.process.send_signal(signal.SIGTERM)
            members.wait(lambda: two.state()["nodes"][one.id]["draining"], seconds=10, what="a node that is drained")
            # Nobody else has the model: here a clear refusal, elsewhere a wait for somebody who has.
            assert await asyncio.to_thread(refuse, one) == (503, "node_restarted")
            waiting = asyncio.create_task(asyncio.to_thread(say, two, "it waited"))
            await asyncio.to_thread(two.place_here)
            assert await asyncio.to_thread(say, one, "done elsewhere") == "done elsewhere"
            assert await waiting == "it waited"
            for record in await streams.end():
                record.check_whole()
        assert await asyncio.to_thread(one.process.wait, STOP_SECONDS) == 0


def refuse(node: Member) -> tuple[int, str]:
    body = {"model": "exo/scripted", "messages": [{"role": "user", "content": "hello"}]}
    answer = httpx2.post(f"{node.url}/v1/chat/completions", json=body, timeout=10)
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize("alone", [True, False])
def test_a_broker_that_hangs_does_not_hold_up_a_stop(tmp_path: Path, alone: bool) -> None:
    with running_nodes(tmp_path, 1 if alone else 2) as members:
        hub = members.wait_hub()
        hub.place_here()
        stopped = hub if alone else next(node for node in members.nodes if node is not hub)
        broker = hub.signal_broker(signal.SIGSTOP)
        check_quick(stop_all([stopped]), members)
        if alone:
            wait_for(lambda: not Path(f"/proc/{broker}").exists(), seconds=5, what="the end of nats-server")


def test_a_node_whose_hub_is_lost_stops(tmp_path: Path) -> None:
    with running_nodes(tmp_path, 2) as members:
        hub = members.wait_hub()
        (other,) = [node for node in members.nodes if node is not hub]
        hub.sleep()
        check_quick(stop_all([other]), members)


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with running_nodes(tmp_path, 1, env=SLOW | {"EXO_SHUTDOWN_GRACE": "60"}) as members:
        (node,) = members.nodes
        node.place_here()
        async with RunningStreams([node], each=1):
            assert node.process is not None
            node.process.send_signal(signal.SIGTERM)
            wait_for(lambda: "waiting for requests to end" in node.log(), seconds=10, what="a word about the wait")
            node.process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(node.process.wait, 2) == 1
