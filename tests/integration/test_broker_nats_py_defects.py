"""Each defect of nats-py 2.16 that we know of, and that our way around it holds (listed in ADR 0012).

The numbers are those of the record.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from exo.broker import process
from exo.broker.bus import Delivery
from exo.broker.config import ServerSettings
from exo.broker.errors import BusUnavailableError, PayloadTooLargeError, PermissionDeniedError
from exo.broker.follower import HEARTBEAT, Tail
from exo.broker.frames import Frame
from exo.broker.hub import Hub
from exo.broker.monitor import Monitor
from exo.broker.nats_bus import NatsBus
from exo.broker.policy import ConnectionSettings
from exo.broker.server import NatsServer
from exo.streams import envelope
from exo.streams.layout import MAX_PAYLOAD
from support.nats import another_bus, kill, running_hub, wait_connection, wait_until

EVENT = "exo.events.node.n1.joined"


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running_hub(tmp_path) as hub:
        yield hub


async def wait_expired(bus: NatsBus) -> None:
    async def absent() -> bool:
        return await bus.get("exo_lease", "master") is None

    await wait_until(absent, what="the key is gone")


async def test_1_an_expired_key_is_absent_and_can_be_created_again(hub: Hub) -> None:
    await hub.bus.put("exo_lease", "master", b"a", revision=0, ttl=1)
    await wait_expired(hub.bus)
    assert await hub.bus.keys("exo_lease") == {}
    revision = await hub.bus.put("exo_lease", "master", b"b", revision=0, ttl=1)
    entry = await hub.bus.get("exo_lease", "master")
    assert entry is not None
    assert (entry.value, entry.revision) == (b"b", revision)


async def test_2_each_write_sets_the_ttl_anew(hub: Hub) -> None:
    revision = await hub.bus.put("exo_lease", "master", b"a", revision=0, ttl=30)
    await hub.bus.put("exo_lease", "master", b"b", revision=revision, ttl=1)
    await wait_expired(hub.bus)


async def test_3_a_lost_delivery_is_noticed_and_repaired(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hear, seen, drops = Tail._hear, list[int](), {100, 101, 250}

    def hear_less(tail: Tail, frame: Frame) -> None:
        if frame.payload and int(frame.payload) in drops:
            drops.remove(int(frame.payload))
            return
        hear(tail, frame)

    monkeypatch.setattr(Tail, "_hear", hear_less)
    for number in range(300):
        await hub.bus.append(EVENT, str(number).encode())
    messages = hub.bus.follow("EXO_EVENTS", after=0)
    async with asyncio.timeout(30):
        while len(seen) < 300:
            seen.append((await anext(messages)).sequence)
    await messages.aclose()
    assert seen == list(range(1, 301))
    assert drops == set()


async def test_3_a_lost_last_delivery_is_noticed_by_the_heartbeat(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hear, dropped = Tail._hear, list[Frame]()

    def hear_less(tail: Tail, frame: Frame) -> None:
        if frame.payload == b"2" and not dropped:
            dropped.append(frame)
        else:
            hear(tail, frame)

    monkeypatch.setattr(Tail, "_hear", hear_less)
    for number in range(3):
        await hub.bus.append(EVENT, str(number).encode())
    messages = hub.bus.follow("EXO_EVENTS", after=0)
    async with asyncio.timeout(20):
        assert [(await anext(messages)).sequence for _ in range(3)] == [1, 2, 3]
    assert len(dropped) == 1
    await messages.aclose()


async def test_3_a_slow_reader_is_waited_for(hub: Hub) -> None:
    """Flow control holds the server back, so that nothing can overflow here."""
    body = bytes(256 * 1024)
    await asyncio.gather(*(hub.bus.append(EVENT, body) for _ in range(400)))
    messages = hub.bus.follow("EXO_EVENTS", after=0)
    monitor = Monitor(hub.server.monitor_url)
    before = (await monitor.server()).out_bytes
    assert (await anext(messages)).sequence == 1
    # Long enough for all of it; the reader is away.
    await asyncio.sleep(2 * HEARTBEAT)
    assert (await monitor.server()).out_bytes - before < 400 * len(body)
    assert [(await anext(messages)).sequence for _ in range(399)] == list(range(2, 401))
    await messages.aclose()


async def test_4_a_follower_resumes_soon_after_a_restart(hub: Hub) -> None:
    messages = hub.bus.follow("EXO_EVENTS", after=0)
    await hub.bus.append(EVENT, b"x")
    assert (await anext(messages)).sequence == 1
    following = asyncio.ensure_future(anext(messages))
    kill(hub.server.pid)
    await wait_connection(hub.bus, connected=False)
    await wait_connection(hub.bus, connected=True)
    await hub.bus.append(EVENT, b"x")
    async with asyncio.timeout(4):
        assert (await following).sequence == 2
    await messages.aclose()


async def test_5_a_refused_subject_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = process.write_config
    rules = (
        'accounts: { A: { jetstream: enabled, users: [ { user: "me", password: "pw", permissions: '
        '{ publish: { deny: ["exo.events.epoch", "exo.control.>"] }, subscribe: { deny: ["exo.logs.>"] } } } ] } }\n'
        "no_auth_user: me\n"
    )
    monkeypatch.setattr(process, "write_config", lambda settings: write(settings) + rules)  # pyright: ignore[reportUnknownLambdaType]
    async with (
        NatsServer(ServerSettings(directory=tmp_path, name="test")) as server,
        NatsBus(ConnectionSettings(url=server.url, name="me"), timeout=60) as bus,
        asyncio.timeout(10),
    ):
        with pytest.raises(PermissionDeniedError, match=r"publish on exo\.events\.epoch"):
            await bus.append("exo.events.epoch", b"x")
        with pytest.raises(PermissionDeniedError):
            await bus.request("exo.control.n1.echo", b"x", timeout=60)
        assert bus.connected


async def test_6_a_silent_server_is_noticed_within_seconds(tmp_path: Path) -> None:
    # Without a hub, which would end the server first.
    server = NatsServer(ServerSettings(directory=tmp_path, name="test"))
    async with server, NatsBus(ConnectionSettings(url=server.url, name="client")) as bus:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            # Pings every 2 s, two may be out; nats-py's own defaults take four minutes.
            await wait_connection(bus, connected=False)
        finally:
            os.kill(server.pid, signal.SIGCONT)


async def test_7_an_ended_follower_leaves_no_consumer(hub: Hub) -> None:
    await hub.bus.append(EVENT, b"x")
    messages = hub.bus.follow("EXO_EVENTS", after=0)
    await anext(messages)
    assert (await hub.bus.stream_info("EXO_EVENTS")).consumers == 1
    await messages.aclose()
    assert (await hub.bus.stream_info("EXO_EVENTS")).consumers == 0


async def test_8_what_timed_out_and_was_stored_is_stored_once(hub: Hub) -> None:
    headers = envelope.headers_of_fact("one")
    async with another_bus(hub, timeout=0.2) as hasty:
        os.kill(hub.server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(BusUnavailableError):
                await hasty.append(EVENT, b"x", headers=headers)
        finally:
            os.kill(hub.server.pid, signal.SIGCONT)
        await hasty.flush()
    again = await hub.bus.append(EVENT, b"x", headers=headers)
    assert again.duplicate
    assert (await hub.bus.stream_info("EXO_EVENTS")).messages == 1


async def test_9_a_flush_covers_what_was_sent_before_it(hub: Hub) -> None:
    """nats-py's own PING overtakes subscriptions and messages that wait in its buffer."""
    async with another_bus(hub) as other:
        for number in range(50):
            heard: list[Delivery] = []
            await other.subscribe(f"exo.telemetry.n{number}.memory", heard.append)
            await other.flush()
            await hub.bus.publish(f"exo.telemetry.n{number}.memory", b"x")
            await hub.bus.flush()
            await other.flush()
            assert len(heard) == 1


async def test_10_headers_count_towards_the_largest_message(hub: Hub) -> None:
    """The server would close the connection, and nats-py never reconnects after that."""
    with pytest.raises(PayloadTooLargeError):
        await hub.bus.append(EVENT, bytes(MAX_PAYLOAD - 8), headers=envelope.headers_of_fact("big"))
    assert hub.bus.connected


async def test_11_a_connection_that_nats_py_gave_up_is_opened_anew(hub: Hub) -> None:
    heard: list[Delivery] = []
    async with another_bus(hub) as other:
        await other.subscribe("exo.telemetry.>", heard.append)
        client = other.connection.client
        assert client._transport is not None
        client._transport.write(b"NONSENSE\r\n")
        await wait_connection(other, connected=False)
        await wait_connection(other, connected=True)
        assert client.is_closed
        await other.publish("exo.telemetry.n1.memory", b"x")
        await other.flush()
        assert [delivery.payload for delivery in heard] == [b"x"]
