"""What tests can make `MemoryBus` play: lost connections, time, restarts, full streams."""

import asyncio
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from exo.broker.bus import Delivery
from exo.broker.errors import BrokerError, BusUnavailableError, ConflictError, StreamFullError
from exo.broker.memory import MemoryBus
from exo.broker.memory_server import MemoryServer
from exo.streams import envelope
from exo.streams.layout import COMMANDS, TOKENS

EVENT = "exo.events.node.n1.joined"


async def test_publishing_outlives_a_lost_connection() -> None:
    bus, heard, states = MemoryBus(), list[Delivery](), list[bool]()
    await bus.subscribe("exo.telemetry.>", heard.append)
    end = bus.on_connection_change(states.append)
    bus.disconnect()
    await bus.publish("exo.telemetry.n1.memory", b"x")
    with pytest.raises(BusUnavailableError):
        await bus.append(EVENT, b"x")
    assert heard == []
    bus.reconnect()
    await bus.flush()
    assert [delivery.payload for delivery in heard] == [b"x"]
    end()
    bus.disconnect()
    assert states == [False, True]


async def test_a_follower_waits_for_the_connection() -> None:
    server = MemoryServer()
    bus, other = MemoryBus(server), MemoryBus(server)
    messages = bus.follow("EXO_EVENTS", after=0)
    following = asyncio.ensure_future(anext(messages))
    bus.disconnect()
    await other.append(EVENT, b"x")
    assert not following.done()
    bus.reconnect()
    async with asyncio.timeout(5):
        assert (await following).sequence == 1


async def test_keys_expire_with_the_clock() -> None:
    bus = MemoryBus()
    revision = await bus.put("exo_lease", "master", b"a", revision=0, ttl=3)
    bus.server.advance(2)
    revision = await bus.put("exo_lease", "master", b"a", revision=revision, ttl=3)
    bus.server.advance(2)
    assert await bus.get("exo_lease", "master") is not None
    bus.server.advance(1)
    assert await bus.get("exo_lease", "master") is None
    with pytest.raises(ConflictError):
        await bus.put("exo_lease", "master", b"a", revision=revision, ttl=3)
    await bus.put("exo_lease", "master", b"b", revision=0, ttl=3)


async def test_a_bucket_without_ttls_refuses_one() -> None:
    with pytest.raises(BrokerError, match="no per-key TTL"):
        await MemoryBus().put("exo_snapshot", "state", b"x", ttl=3)


async def test_unsettled_work_comes_back_with_the_clock() -> None:
    bus = MemoryBus()
    await bus.append("exo.commands.task.submit", b"x")
    async with aclosing(bus.work("EXO_COMMANDS", name="master", ack_wait=5)) as items:
        assert (await anext(items)).deliveries == 1
        bus.server.advance(5)
        async with asyncio.timeout(5):
            assert (await anext(items)).deliveries == 2


async def test_message_ids_are_forgotten_after_the_window() -> None:
    bus = MemoryBus()
    headers = envelope.headers_of_fact("one")
    await bus.append(EVENT, b"x", headers=headers)
    bus.server.advance(119)
    assert (await bus.append(EVENT, b"x", headers=headers)).duplicate
    bus.server.advance(1)
    assert not (await bus.append(EVENT, b"x", headers=headers)).duplicate


async def test_old_messages_are_forgotten() -> None:
    bus = MemoryBus()
    await bus.append("exo.requests.t1", b"x")
    bus.server.advance(3600)
    assert await bus.get_last("EXO_REQUESTS", "exo.requests.t1") is None


async def test_a_restart_loses_what_is_in_memory_only() -> None:
    bus = MemoryBus()
    await bus.append(EVENT, b"x")
    await bus.publish("exo.tokens.n1.t1", b"x")
    await bus.put("exo_lease", "master", b"a")
    bus.server.lose_memory()
    assert (await bus.stream_info("EXO_EVENTS")).messages == 1
    assert (await bus.stream_info("EXO_TOKENS")).messages == 0
    assert await bus.get("exo_lease", "master") is None


async def test_a_full_stream_refuses_or_forgets() -> None:
    small = (replace(COMMANDS, max_bytes=100), replace(TOKENS, max_bytes=100))
    bus = MemoryBus(MemoryServer(streams=small))
    await bus.append("exo.commands.task.submit", bytes(60))
    with pytest.raises(StreamFullError):
        await bus.append("exo.commands.task.submit", bytes(60))
    await bus.publish("exo.tokens.n1.t1", bytes(60))
    await bus.publish("exo.tokens.n1.t1", bytes(70))
    assert [len(message.payload) for message in await bus.read("EXO_TOKENS", ">")] == [70]
