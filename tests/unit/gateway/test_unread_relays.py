"""A relay whose reader never comes must not stay open for ever."""

import asyncio

import pytest

from exo.gateway import hub
from exo.gateway.hub import RelayHub
from exo.gateway.outages import Outages
from exo.gateway.settings import GatewaySettings
from exo.streams.ids import TaskId
from support.fake_cluster import FakeCluster
from support.gateway import until


async def test_a_stream_that_nobody_comes_to_read_is_closed(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "TICK", 0.02)
    monkeypatch.setattr(hub, "UNREAD_AFTER", 0.1)
    async with asyncio.TaskGroup() as group:
        outages = Outages(cluster.gateway_bus, cluster.states, explain=str)
        relays = RelayHub(
            cluster.gateway_bus,
            cluster.states,
            outages=outages,
            settings=GatewaySettings(),
            spawn=group.create_task,
        )
        keeper = group.create_task(relays.run())
        unread = await relays.open(TaskId("task-1"), cancels=False)
        read = await relays.open(TaskId("task-2"), cancels=False)
        read.unread_since = None
        await until(lambda: len(relays) == 1, within=5)
        assert (unread.closed, read.closed) == (True, False)
        relays.close(read)
        keeper.cancel()
