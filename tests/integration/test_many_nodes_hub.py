"""What clients and nodes see when the hub dies, hangs, sleeps or is lost, with answers being streamed.

Three nodes: a hub that runs no model, a worker that does, and one more. The clients are at the latter two.
docs/fault-tests.md says which of these were seen to fail with their mechanism switched off, and how.
"""

import asyncio
import signal
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.many_nodes import Member, Members, running_nodes
from support.replay import check_replay
from support.streams import SLOW, RunningStreams, TimedStream, say

MEDIAN_PAUSE, LONGEST_PAUSE, LONGEST_MOVE = 1, 3, 5
"""Seconds without a token: when the broker dies, and when the hub has to move."""
BUSY = 2
"""The machine that runs the tests has more to do than a node of a user."""


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with running_nodes(tmp_path, 3, env=SLOW, first=["--no-worker"]) as members:
        members[1].place_here()
        yield members


def check_all(records: list[TimedStream], *, longest: float, median: float | None = None) -> None:
    """Hold all streams to be whole, and their pauses to be short."""
    for record in records:
        record.check_whole()
    pauses = [record.longest_pause() for record in records]
    assert max(pauses) < longest * BUSY, sorted(pauses)
    assert median is None or statistics.median(pauses) < median * BUSY, sorted(pauses)


async def test_broker_of_the_cluster_killed_under_streams(members: Members) -> None:
    hub, worker, other = members.nodes
    before = members.wait_agreement()
    async with RunningStreams([worker, other], each=10) as streams:
        killed = hub.signal_broker(signal.SIGKILL)
        check_all(await streams.end(), longest=LONGEST_PAUSE, median=MEDIAN_PAUSE)
    assert await asyncio.to_thread(members.settle) is hub
    assert hub.broker_pid() not in {None, killed}
    state = await check_replay(members)
    # Restarted in place: the same session, and nothing is lost.
    assert (state["session"], list(state["instances"])) == (before["session"], list(before["instances"]))
    assert say(other, "all is well") == "all is well"


async def test_broker_of_the_cluster_hangs_under_streams(members: Members) -> None:
    hub, worker, other = members.nodes
    before = members.wait_agreement()
    async with RunningStreams([worker, other]) as streams:
        hung = hub.signal_broker(signal.SIGSTOP)
        check_all(await streams.end(), longest=2 * LONGEST_MOVE)
    if hung in {process.pid for process in hub.processes()}:
        hub.signal_broker(signal.SIGCONT)
    await asyncio.to_thread(members.settle)
    state = await check_replay(members)
    assert list(state["instances"]) == list(before["instances"])
    assert say(other, "all is well") == "all is well"


async def test_node_of_the_hub_hangs_and_another_rules(members: Members) -> None:
    hub, worker, other = members.nodes
    before = members.wait_agreement()
    assert hub.process is not None
    async with RunningStreams([worker, other]) as streams:
        hub.process.send_signal(signal.SIGSTOP)
        check_all(await streams.end(), longest=LONGEST_MOVE)
        # Somebody decides, though the master does not.
        second = await asyncio.to_thread(other.place_here)
    hub.process.send_signal(signal.SIGCONT)
    await asyncio.to_thread(members.settle)
    state = await check_replay(members)
    assert list(state["instances"]) == [*before["instances"], second]
    assert state["epoch"] > before["epoch"]


def kill_node(hub: Member) -> None:
    hub.kill()


def put_to_sleep(hub: Member) -> None:
    hub.sleep()


def lose_host(hub: Member) -> None:
    hub.lose()


@pytest.mark.parametrize("break_hub", [kill_node, put_to_sleep, pytest.param(lose_host, marks=pytest.mark.full)])
async def test_hub_is_gone_and_another_takes_over(members: Members, break_hub: Callable[[Member], None]) -> None:
    hub, worker, other = members.nodes
    before = members.wait_agreement()
    async with RunningStreams([worker, other], each=10) as streams:
        await asyncio.to_thread(break_hub, hub)
        check_all(await streams.end(), longest=LONGEST_MOVE)
    # Those that are left go on, in a session that continues the old one.
    successor = await asyncio.to_thread(members.wait_hub, [worker, other])
    state = await asyncio.to_thread(members.wait_agreement, [worker, other])
    assert state["session"] != before["session"]
    assert before["session"] in state["lineage"]
    assert list(state["instances"]) == list(before["instances"])
    assert not state["removed_instances"]
    assert say(other, "all is well") == "all is well"

    # The old hub comes back and follows.
    if hub.running:
        hub.wake()
    else:
        await asyncio.to_thread(hub.start)
    assert await asyncio.to_thread(members.settle) is successor
    assert hub.broker_pid() is None
    state = await check_replay(members)
    assert list(state["instances"]) == list(before["instances"])
    outcomes = {task["outcome"] for page in state["ended_tasks"]["pages"] for task in page.values()}
    assert outcomes == {"finished"}
    assert say(hub, "here again") == "here again"


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_one_hub_after_the_other_is_lost(members: Members) -> None:
    """Three times in a row, until the first hub is back in office or not: the models never notice."""
    _, worker, _ = members.nodes
    instances = list(members.wait_agreement()["instances"])
    for number in range(4):
        hub = await asyncio.to_thread(members.settle)
        asked = next(node for node in members.running if node is not hub)
        if hub is worker:
            # Its model is lost with it: only hubs without one are killed here.
            assert await asyncio.to_thread(hub.stop) == 0
        else:
            await asyncio.to_thread(hub.lose)
        await asyncio.to_thread(members.wait_hub, members.running)
        await asyncio.to_thread(hub.start)
        await asyncio.to_thread(members.settle)
        assert list((await check_replay(members))["instances"]) == instances
        asked.await_ready("exo/scripted")
        assert say(asked, f"round {number}") == f"round {number}"


@pytest.mark.full
@pytest.mark.timeout(240)
async def test_whole_cluster_goes_down_and_comes_back(members: Members) -> None:
    for node in members.nodes:
        node.keep_port()
    before = members.wait_agreement()
    await asyncio.gather(*(asyncio.to_thread(node.lose) for node in members.nodes))
    for node in members.nodes:
        node.launch()
    for node in members.nodes:
        await asyncio.to_thread(node.await_up)
    await asyncio.to_thread(members.settle, seconds=60)
    state = await check_replay(members)
    assert list(state["instances"]) == list(before["instances"])
    members[2].await_ready("exo/scripted")
    assert say(members[2], "as before") == "as before"
