"""A running cluster of three is closed on one node: that one goes on alone, the others without it, until they join.

Nobody is restarted, nobody flaps, and in the end all have everything.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from exo.broker.credentials import Credentials
from exo.broker.errors import PermissionDeniedError
from exo.broker.permissions import HUB, MASTER, READER
from support.many_nodes import CLUSTER, Member, Members, running_nodes
from support.replay import tapping
from support.streams import SLOW, RunningStreams, say

ANOTHER = f"exo1-{'b' * 52}"


def refusals(node: Member) -> dict[str, dict[str, Any]]:
    """Give the standing refusals by the name of the other, the most repeated one of each."""
    listed = sorted(node.report()["refusals"], key=lambda refusal: refusal["times"])
    return {refusal["name"]: refusal for refusal in listed if refusal["code"] == "secret_mismatch"}


def place(node: Member) -> tuple[Any, ...]:
    """Give where a node stands: what changes when it flaps."""
    report, state = node.report(), node.agreed()
    return report["hub"], report["session"], state["master"], state["epoch"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("closer", [0, 1], ids=["the hub", "a follower"])
async def test_a_cluster_is_closed_while_it_runs(tmp_path: Path, closer: int) -> None:
    with running_nodes(tmp_path, 3, env=SLOW) as members:
        closed, others = members[closer], [node for node in members.nodes if node is not members[closer]]
        await asyncio.to_thread(closed.place_here)
        async with RunningStreams([closed]) as streams:
            await asyncio.to_thread(others[0].place_here)
            before = set(members.wait_agreement()["instances"])
            (line, *_) = (await asyncio.to_thread(closed.command, "cluster", "secret")).splitlines()
            secret = line.rpartition(" ")[2]
            await asyncio.to_thread(members.settle, [closed])
            await asyncio.to_thread(members.settle, others)
            for record in await streams.end():
                record.check_whole()
        # Each part has all that was there, and serves.
        for part in ([closed], others):
            assert set(members.wait_agreement(part)["instances"]) == before
            assert say(part[0], "still served") == "still served"
        await asyncio.to_thread(check_refusals, members, closed, others)
        await check_old_keys(closed)
        # Each part goes on and changes meanwhile.
        mine, theirs = [await asyncio.to_thread(node.place_here) for node in (closed, others[0])]
        for node in others:
            await asyncio.to_thread(node.command, "cluster", "join", secret)
        await asyncio.to_thread(members.settle)
        wanted = before | {mine, theirs}
        members.wait(lambda: set(members.wait_agreement()["instances"]) == wanted, seconds=20, what="the union")
        assert all(node.report()["closed"] for node in members.nodes)
        assert say(others[1], "one again") == "one again"
        await check_old_keys(members.wait_hub())


def are_refused(node: Member, names: set[str]) -> bool:
    """Whether a node has parted with each of these more than once."""
    seen = refusals(node)
    return all(name in seen and seen[name]["times"] > 1 for name in names)


def check_refusals(members: Members, closed: Member, others: list[Member]) -> None:
    """Both sides name each other, again and again, and that moves nobody."""
    settled = [place(node) for node in (closed, *others)]
    for node in (closed, *others):
        names = {other.name for other in others} if node is closed else {closed.name}
        members.wait(partial(are_refused, node, names), seconds=30, what=f"repeated refusals on {node.name}")
        assert {f"{other.name} does not have the cluster secret that {closed.name} has" for other in others} >= {
            refusal["reason"] for refusal in refusals(node).values()
        }
        assert "exo cluster join SECRET" in node.doctor()["refused"]["remedy"]
    assert [place(node) for node in (closed, *others)] == settled


async def check_old_keys(node: Member) -> None:
    """The message server itself refuses the keys of the open cluster, whatever their role, and a wrong secret's."""
    for credentials in (Credentials(CLUSTER), Credentials(CLUSTER, ANOTHER)):
        for role in (HUB, MASTER, READER, f"node-{node.id}"):
            with pytest.raises(PermissionDeniedError):
                async with tapping(node, role=role, credentials=credentials):
                    pass
