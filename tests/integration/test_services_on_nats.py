"""The services of a node on a real nats-server: what only a real server can refuse, cut or forget."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from exo.broker.hub import Hub, HubSettings
from exo.services.clock import SystemClock
from exo.services.master.reign import DeposedError, Reign
from exo.services.projection import Projection
from exo.streams import commands as c
from exo.streams.chunks import Done, Failed
from exo.streams.events import TaskCancelled
from exo.streams.ids import BootId, NodeId, TaskId
from exo.streams.layout import EVENTS
from support.links import begin as begin_session
from support.nats import CREDENTIALS
from support.services import Cluster, eventually, scripted

SLOW = {"tokens_per_second": 200.0}


def hub_at(directory: Path) -> Hub:
    return Hub(HubSettings(directory=directory / "nats", name="test"), credentials=CREDENTIALS)


async def test_streams_outlive_a_killed_server(tmp_path: Path) -> None:
    async with hub_at(tmp_path) as hub, Cluster(hub.bus, scripted(tmp_path, SLOW)) as cluster:
        await cluster.place()
        text = " ".join(f"word{number}" for number in range(60))
        answers = [await cluster.submit(f"[[say:{text}]]") for _ in range(5)]
        await asyncio.gather(*(answer.has(5) for answer in answers))
        epoch = cluster.state.epoch
        os.kill(hub.server.pid, signal.SIGKILL)
        for answer in answers:
            assert isinstance(await answer.end(), Done)
            assert answer.text() == text
        await cluster.wait(lambda state: not state.tasks)
        assert {ended.outcome for _, ended in cluster.state.ended_tasks.items()} == {"finished"}
        after = await cluster.submit("[[say:after]]")
        await after.end()
        assert after.text() == "after"
        assert cluster.state.epoch == epoch


async def test_a_node_and_its_server_come_back_with_their_models(tmp_path: Path) -> None:
    async with hub_at(tmp_path) as hub, Cluster(hub.bus, scripted(tmp_path, SLOW)) as cluster:
        instance = await cluster.place()
        session = cluster.state.session
        answer = await cluster.submit("[[say:" + "word " * 2000 + "]]")
        await answer.has(2)
    assert isinstance(await answer.end(), Failed)
    again = scripted(tmp_path, boot=BootId("boot-2"))
    async with hub_at(tmp_path) as hub, Cluster(hub.bus, again) as cluster:
        await cluster.ready(instance)
        assert cluster.state.session == session
        ended = cluster.state.ended_tasks.get(answer.task)
        assert ended is not None
        assert ended.outcome == "failed"


async def test_the_server_refuses_a_deposed_master_and_keeps_the_fence_when_cut(tmp_path: Path) -> None:
    async with hub_at(tmp_path) as hub:
        projection = Projection(hub.bus, node=NodeId("a"), boot=BootId("boot-a"))
        await begin_session(hub.bus, projection)
        following = asyncio.create_task(projection.run())
        await projection.caught_up(timeout=10)

        async def begin(name: str) -> Reign:
            reign = Reign(hub.bus, projection, clock=SystemClock(), node=NodeId(name), boot=BootId(f"boot-{name}"))
            await reign.begin()
            return reign

        async def write(reign: Reign, name: str) -> None:
            async with reign.turn():
                await reign.write(TaskCancelled(task=TaskId(name), reason=""))

        first = await begin("a")
        await write(first, "one")
        second = await begin("b")
        with pytest.raises(DeposedError):
            await write(first, "two")
        await second.renew()
        await hub.bus.purge(EVENTS.name, below=second.epoch_sequence)
        with pytest.raises(DeposedError):
            await write(first, "three")
        await write(second, "four")
        assert [task for task, _ in projection.state.ended_tasks.items()] == ["one", "four"]
        following.cancel()


async def test_the_log_is_cut_while_the_node_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exo.services.snapshots.service.Snapshots.__init__.__kwdefaults__", {"every": 20, "kept": 5})
    async with hub_at(tmp_path) as hub, Cluster(hub.bus, scripted(tmp_path)) as cluster:
        for number in range(60):
            await cluster.command(c.CancelTask, task=TaskId(f"t-{number}"))

        async def is_cut() -> bool:
            return (await hub.bus.stream_info(EVENTS.name)).first_sequence > 30

        await eventually(is_cut, what="a shorter log")
        fresh = Projection(hub.bus)
        following = asyncio.create_task(fresh.run())
        await fresh.caught_up(timeout=10)
        assert len(fresh.state.ended_tasks) == 60
        await cluster.place()
        following.cancel()
