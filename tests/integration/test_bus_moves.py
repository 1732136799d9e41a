"""One bus that goes from one server to another: nothing of the old one is heard after, everything is made anew.

Which of them were seen to fail with which mechanism switched off: docs/fault-tests.md.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from exo.broker.errors import BusUnavailableError, NoResponderError
from exo.broker.hub import Hub, HubSettings
from exo.broker.mailbox import Mailbox
from exo.broker.nats_bus import NatsBus
from exo.broker.permissions import HUB
from exo.broker.provision import wait_provisioned
from exo.streams.layout import COMMANDS, EVENTS
from support.nats import CREDENTIALS, another_bus, kill, wait_connection, wait_until

EVENT = "exo.events.node.n1.joined"


@pytest.fixture
async def old(tmp_path: Path) -> AsyncIterator[Hub]:
    async with Hub(HubSettings(directory=tmp_path / "old", name="old"), credentials=CREDENTIALS) as hub:
        yield hub


@pytest.fixture
async def new(tmp_path: Path) -> AsyncIterator[Hub]:
    async with Hub(HubSettings(directory=tmp_path / "new", name="new"), credentials=CREDENTIALS) as hub:
        yield hub


async def move(bus: NatsBus, hub: Hub) -> None:
    await bus.connection.move(hub.connection_settings(HUB, name="another"))


async def test_a_bus_exists_before_it_is_connected(new: Hub) -> None:
    heard: list[bool] = []
    settings = msgspec.structs.replace(new.connection_settings(HUB, name="another"), url="")
    bus = NatsBus(settings, timeout=0.2)
    bus.on_connection_change(heard.append)
    assert not bus.connected
    for attempt in (bus.flush, lambda: bus.append(EVENT, b"x"), lambda: bus.publish("exo.telemetry.n1.memory", b"x")):
        with pytest.raises(BusUnavailableError):
            await attempt()
    await move(bus, new)
    assert heard == [True]
    await bus.append(EVENT, b"x")
    await bus.close()


async def test_subscriptions_and_responders_come_along(old: Hub, new: Hub) -> None:
    heard: list[bytes] = []
    changes: list[bool] = []

    async def echo(payload: bytes) -> bytes:
        return payload

    async with another_bus(old) as bus, another_bus(new) as there:
        await bus.subscribe("exo.telemetry.>", lambda delivery: heard.append(delivery.payload))
        await bus.respond("exo.control.n1.echo", echo)
        bus.on_connection_change(changes.append)
        await move(bus, new)
        assert changes == [False, True]
        await there.publish("exo.telemetry.n1.memory", b"new")
        assert await there.request("exo.control.n1.echo", b"x", timeout=2) == b"x"
        await old.bus.publish("exo.telemetry.n1.memory", b"old")
        await old.bus.flush()
        with pytest.raises(NoResponderError):
            await old.bus.request("exo.control.n1.echo", b"x", timeout=2)
        await bus.flush()
        await wait_until(lambda: bool(heard), what="the new server is heard")
        assert heard == [b"new"]


async def test_a_follower_gives_nothing_of_the_old_server_after_the_move(old: Hub, new: Hub) -> None:
    for number in range(200):
        await old.bus.append(EVENT, b"old %d" % number)
        await new.bus.append(EVENT, b"new %d" % number)
    async with another_bus(old) as bus:
        messages = bus.follow(EVENTS.name, after=0)
        # The rest of the batch waits in the generator and in the mailbox.
        assert (await anext(messages)).payload == b"old 0"
        await move(bus, new)
        assert [(await anext(messages)).payload for _ in range(3)] == [b"new 1", b"new 2", b"new 3"]
        await messages.aclose()


async def test_a_subscriber_hears_nothing_that_the_old_connection_had_still_to_read(old: Hub, new: Hub) -> None:
    heard: list[bytes] = []
    async with another_bus(old) as bus:
        await bus.subscribe("exo.telemetry.>", lambda delivery: heard.append(delivery.payload))
        client = bus.connection.client
        unread = b"".join(b"MSG exo.telemetry.n1.memory %d 3\r\nold\r\n" % number for number in (1, 2, 3))
        await client._ps.parse(unread)
        assert heard == [b"old"]
        await move(bus, new)
        await client._ps.parse(unread)
        assert heard == [b"old"]


async def test_what_came_before_a_loss_is_not_taken_after_it(old: Hub) -> None:
    async with another_bus(old) as bus:
        mailbox: Mailbox[bytes] = Mailbox(bus.connection)
        mailbox.put(b"old")
        bus.connection.hold()
        with pytest.raises(BusUnavailableError):
            await mailbox.take(1)
        mailbox.close()


async def test_work_of_the_old_server_is_not_given_after_the_move(old: Hub, new: Hub) -> None:
    await old.bus.append("exo.commands.task.submit", b"old")
    await old.bus.append("exo.commands.task.submit", b"old too")
    await new.bus.append("exo.commands.task.submit", b"new")
    async with another_bus(old) as bus:
        work = bus.work(COMMANDS.name, name="master")
        await anext(work)
        await move(bus, new)
        assert (await anext(work)).message.payload == b"new"
        await work.aclose()


async def test_a_request_that_waits_fails_at_once(old: Hub, new: Hub) -> None:
    async def dawdle(payload: bytes) -> bytes:
        await asyncio.Event().wait()
        return payload

    await old.bus.respond("exo.control.n1.slow", dawdle)
    async with another_bus(old) as bus:
        waiting = asyncio.ensure_future(bus.request("exo.control.n1.slow", b"", timeout=60))
        await bus.flush()
        await move(bus, new)
        with pytest.raises(BusUnavailableError, match="lost"):
            await waiting


async def test_a_move_that_fails_leaves_everything_as_it_is(old: Hub) -> None:
    changes: list[bool] = []
    async with another_bus(old) as bus:
        bus.on_connection_change(changes.append)
        settings = msgspec.structs.replace(bus.connection.settings, url="nats://127.0.0.1:9", open_timeout=2)
        with pytest.raises(BusUnavailableError, match="cannot connect"):
            await bus.connection.move(settings)
        await bus.append(EVENT, b"x")
        assert changes == []


async def test_after_a_move_the_bus_comes_back_to_the_new_server(old: Hub, new: Hub) -> None:
    async with another_bus(old) as bus:
        await move(bus, new)
        kill(old.server.pid)
        kill(new.server.pid)
        await wait_connection(bus, connected=False)
        await wait_connection(bus, connected=True)
        assert bus.connection.settings.url == new.url
        await bus.append(EVENT, b"x")
        assert (await bus.stream_info(EVENTS.name)).messages == 1


async def test_a_held_bus_lets_nobody_through_until_it_is_released(old: Hub) -> None:
    changes: list[bool] = []
    async with another_bus(old, timeout=0.2) as bus:
        bus.on_connection_change(changes.append)
        bus.connection.hold()
        with pytest.raises(BusUnavailableError):
            await bus.append(EVENT, b"x")
        # Not even a reconnection opens it.
        kill(old.server.pid)
        await wait_until(lambda: old.server.restarts == 1 and old.server.ready, what="the server is back")
        await wait_until(lambda: bus.connection.client.is_connected, what="the client is back")
        assert not bus.connected
        bus.connection.release()
        await wait_connection(bus, connected=True)
        assert changes == [False, True]
        await bus.append(EVENT, b"x")


async def test_nobody_is_let_in_before_the_session_has_begun(new: Hub) -> None:
    settings = msgspec.structs.replace(new.connection_settings(HUB, name="another"), open_timeout=0.3)
    bus = NatsBus(settings, restore=wait_provisioned)
    with pytest.raises(BusUnavailableError):
        await bus.connection.move(settings)
    assert not bus.connected
    await new.bus.append("exo.events.epoch", b"{}")
    await wait_connection(bus, connected=True)
    await bus.close()
