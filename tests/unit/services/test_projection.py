"""State on a node: replay, snapshot, waiting, and logs that are cut or replaced."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from exo.broker.memory import MemoryBus
from exo.services.clock import SystemClock
from exo.services.journal import append_event
from exo.services.projection import Projection
from exo.services.snapshots.store import KEY, load_snapshot, save_snapshot
from exo.streams import events as e
from exo.streams.codec import encode
from exo.streams.codes import Code
from exo.streams.envelope import headers_of_fact
from exo.streams.ids import CommandId, NodeId, SessionId
from exo.streams.layout import EVENTS, SNAPSHOT
from exo.streams.state import State
from support.services import BOOT, NODE, NOW, make_facts


async def write(bus: MemoryBus, *happened: e.Event, cause: str | None = None) -> int:
    sequence = 0
    for event in happened:
        identifier = f"id-{(await bus.stream_info(EVENTS.name)).last_sequence}"
        envelope = e.Envelope(
            id=identifier, at=NOW, actor=NODE, boot=BOOT, cause=CommandId(cause) if cause else None, event=event
        )
        ack = await append_event(bus, envelope, headers_of_fact(identifier), clock=SystemClock())
        sequence = ack.sequence
    return sequence


def epoch(number: int) -> e.EpochStarted:
    return e.EpochStarted(session=SessionId("s"), epoch=number, base=0, state_hash="", master=NODE)


@asynccontextmanager
async def following(bus: MemoryBus) -> AsyncGenerator[Projection]:
    projection = Projection(bus)
    task = asyncio.create_task(projection.run())
    try:
        await projection.caught_up(timeout=5)
        yield projection
    finally:
        task.cancel()


async def test_what_stands_in_the_log_is_folded_before_it_has_caught_up() -> None:
    bus = MemoryBus()
    await write(bus, epoch(1), epoch(2))
    async with following(bus) as projection:
        assert (projection.state.epoch, projection.state.applied) == (2, 2)


async def test_an_empty_log_is_caught_up_at_once() -> None:
    async with following(MemoryBus()) as projection:
        assert projection.state == State()


async def test_waiting_ends_with_the_state_that_was_wished_for() -> None:
    bus = MemoryBus()
    async with following(bus) as projection:
        waiting = [asyncio.create_task(projection.wait(lambda state: state.epoch >= 3, timeout=5)) for _ in range(50)]
        await write(bus, epoch(1), epoch(2), epoch(3))
        states = await asyncio.gather(*waiting)
        assert {state.epoch for state in states} == {3}
        assert (await projection.wait(lambda state: state.epoch == 3)).epoch == 3


async def test_waiting_has_an_end() -> None:
    async with following(MemoryBus()) as projection:
        with pytest.raises(TimeoutError):
            await projection.wait(lambda state: state.epoch > 0, timeout=0.01)
        with pytest.raises(TimeoutError):
            await projection.answer(CommandId("c"), timeout=0.01)
        assert projection._waiters == {}
        assert projection._answers == {}


async def test_a_burst_is_checked_once_for_all_waiters() -> None:
    bus, checks = MemoryBus(), list[int]()
    async with following(bus) as projection:

        def look(state: State) -> bool:
            checks.append(state.applied)
            return state.applied >= 100

        waiting = asyncio.create_task(projection.wait(look, timeout=5))
        await asyncio.sleep(0)
        bus.disconnect()
        for number in range(100):
            identifier = f"id-{number}"
            envelope = e.Envelope(id=identifier, at=NOW, actor=NODE, boot=BOOT, event=epoch(number))

            bus.server.append(e.subject_of_event(envelope.event), encode(envelope), headers={})
        bus.reconnect()
        await waiting
    assert checks == [0, 100]


async def test_the_answer_to_a_command_is_told_to_everyone_who_asked() -> None:
    bus = MemoryBus()
    async with following(bus) as projection:
        waiting = [asyncio.create_task(projection.answer(CommandId("c-1"), timeout=5)) for _ in range(2)]
        await asyncio.sleep(0)
        rejected = e.CommandRejected(command=CommandId("c-1"), code=Code.OVERLOADED, reason="busy")
        await write(bus, rejected, cause="c-1")
        receipts = await asyncio.gather(*waiting)
        assert [receipt.code for receipt in receipts] == [Code.OVERLOADED] * 2
        assert (await projection.answer(CommandId("c-1"), timeout=0)).reason == "busy"


async def test_listeners_hear_every_event_with_the_state_after_it() -> None:
    bus, heard = MemoryBus(), list[tuple[int, int]]()
    async with following(bus) as projection:
        stop = projection.on_event(lambda recorded, state: heard.append((recorded.sequence, state.epoch)))
        last = await write(bus, epoch(1), epoch(2))
        await projection.wait(lambda state: state.applied >= last, timeout=5)
        stop()
        last = await write(bus, epoch(3))
        await projection.wait(lambda state: state.applied >= last, timeout=5)
    assert heard == [(1, 1), (2, 2)]


async def test_a_start_from_a_snapshot_equals_a_replay() -> None:
    bus = MemoryBus()
    await write(bus, epoch(1), e.NodeJoined(node=NODE, facts=make_facts()))
    async with following(bus) as projection:
        await save_snapshot(bus, projection.state)
    await bus.purge(EVENTS.name, below=3)
    await write(bus, epoch(2))
    async with following(bus) as projection:
        assert projection.state.nodes[NODE].online
        assert (projection.state.epoch, projection.state.applied) == (2, 3)


async def test_a_follower_that_is_cut_off_loads_the_snapshot() -> None:
    bus = MemoryBus()
    ahead = MemoryBus(bus.server)
    async with following(ahead) as leader, following(bus) as projection:
        bus.disconnect()
        await write(ahead, *(epoch(number) for number in range(1, 20)))
        state = await leader.wait(lambda state: state.applied == 19, timeout=5)
        await save_snapshot(ahead, state)
        await ahead.purge(EVENTS.name, below=19)
        bus.reconnect()
        assert (await projection.wait(lambda state: state.applied == 19, timeout=5)) == state


async def test_a_command_answered_inside_a_snapshot_is_told() -> None:
    bus = MemoryBus()
    ahead = MemoryBus(bus.server)
    async with following(ahead) as leader, following(bus) as projection:
        bus.disconnect()
        waiting = asyncio.create_task(projection.answer(CommandId("c-1"), timeout=5))
        await asyncio.sleep(0)
        await write(ahead, e.CommandRejected(command=CommandId("c-1"), code="x", reason="y"), cause="c-1")
        state = await leader.wait(lambda state: state.applied == 1, timeout=5)
        await save_snapshot(ahead, state)
        await write(ahead, epoch(1))
        await ahead.purge(EVENTS.name, below=2)
        bus.reconnect()
        assert (await waiting).reason == "y"


async def test_a_damaged_snapshot_is_not_used() -> None:
    bus = MemoryBus()
    last = await write(bus, epoch(1))
    for damaged in (b"no snapshot", b""):
        await bus.put(SNAPSHOT.name, KEY, damaged)
        assert await load_snapshot(bus) is None
        async with following(bus) as projection:
            assert projection.state.applied == last


async def test_a_snapshot_of_another_log_is_not_used() -> None:
    bus = MemoryBus()
    await write(bus, epoch(1))
    await save_snapshot(bus, State(applied=500, epoch=77))
    async with following(bus) as projection:
        assert (projection.state.applied, projection.state.epoch) == (1, 1)


async def test_an_event_of_a_newer_version_is_counted_and_skipped() -> None:
    bus = MemoryBus()
    bus.server.append(e.subject_of_event(epoch(1)), b'{"event":{"type":"dance"}}', headers={})
    await write(bus, epoch(1))
    async with following(bus) as projection:
        assert (projection.state.unknown_events, projection.state.epoch) == (1, 1)


async def test_following_survives_the_loss_of_the_broker() -> None:
    bus = MemoryBus()
    other = MemoryBus(bus.server)
    async with following(bus) as projection:
        bus.disconnect()
        await write(other, epoch(1))
        bus.reconnect()
        assert (await projection.wait(lambda state: state.epoch == 1, timeout=5)).master == NodeId(NODE)
