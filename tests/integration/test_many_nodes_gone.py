"""What clients see when the process of a node that runs models is gone: its machine says so, nobody has to wait.

Three nodes: a hub that runs no model, and two that run a copy each.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.many_nodes import Members, running_nodes
from support.node import wait_for
from support.streams import SLOW, WORDS, RunningStreams, say

ANSWERED, ENDED, NOTICED = 3, 10, 10
"""Seconds."""


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with running_nodes(tmp_path, 3, env=SLOW, first=["--no-worker"]) as members:
        members[1].place_here()
        members[2].place_here()
        yield members


async def test_node_that_runs_a_model_is_killed_under_streams(members: Members) -> None:
    hub, killed, other = members.nodes
    async with RunningStreams([hub], each=8, text=" ".join([WORDS] * 3)) as streams:
        await asyncio.to_thread(killed.kill)
        began = time.monotonic()
        for number in range(4):
            asked_at = time.monotonic()
            assert await asyncio.to_thread(say, hub, f"answer {number}") == f"answer {number}"
            assert time.monotonic() - asked_at < ANSWERED
        while len(streams.records) // 2 > sum(bool(record.errors) for record in streams.records):
            assert time.monotonic() - began < ENDED, hub.log()
            await asyncio.sleep(0.05)
        broken = [record for record in streams.records if record.errors]
        assert len(broken) == len(streams.records) // 2
        for record in broken:
            (error,) = record.errors
            assert f"the node that worked on the request ({killed.name}) was lost" in str(error)

        def is_noticed() -> bool:
            record = hub.state()["nodes"][killed.id]
            return (record["online"], record["cause"]) == (False, "timed_out")

        left = NOTICED - (time.monotonic() - began)
        await asyncio.to_thread(wait_for, is_noticed, seconds=left, what="node that is offline", node=hub)
    # Back with a new boot nothing is wrong.
    await asyncio.to_thread(killed.start)
    assert await asyncio.to_thread(members.settle) is hub
    assert say(other, "all is well") == "all is well"
