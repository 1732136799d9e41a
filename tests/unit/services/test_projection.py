"""State on a node: replay, snapshot, waiting, and logs that are cut or replaced."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from exo.broker.errors import ConflictError
from exo.broker.memory import MemoryBus
from exo.services.clock import SystemClock
from exo.services.journal import append_event
from exo.services.log_check import read_epoch
from exo.services.projection import Projection
from exo.services.snapshots.store import KEY, load_snapshot, save_snapshot
from exo.services.standby import begin_session
from exo.streams import events as e
from exo.streams.codec import encode, hash_state
from exo.streams.codes import Code
from exo.streams.envelope import headers_of_fact
from exo.streams.ids import CommandId, NodeId, SessionId, TaskId
from exo.streams.layout import EVENTS, SNAPSHOT
from exo.streams.state import State
from exo.streams.views import is_descendant
from support.links import MovableBus, make_server
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


def begun(session: str, number: int, *, state: State) -> e.EpochStarted:
    return e.EpochStarted(
        session=SessionId(session), epoch=number, base=state.applied, state_hash=hash_state(state), master=NODE
    )


def cancelled(task: str) -> e.TaskCancelled:
    return e.TaskCancelled(task=TaskId(task), reason=task)


def rejected(command: str) -> e.CommandRejected:
    return e.CommandRejected(command=CommandId(command), code="x", reason=command)


async def move(bus: MovableBus, standby: State, *, session: str = "next") -> MemoryBus:
    """A hub that begins a session with this State; gives another connection to it."""
    other = MemoryBus(make_server(base=standby.applied))
    await begin_session(other, standby, session=SessionId(session), node=NODE, boot=BOOT, clock=SystemClock())
    bus.move(other.server)
    return other


async def test_a_follower_with_the_very_state_goes_on_and_hears_every_event() -> None:
    bus = MovableBus()
    await write(bus, begun("first", 1, state=State()), rejected("c-1"))
    async with following(bus) as projection:
        heard, told = list[int](), list[tuple[State, State]]()
        projection.on_event(lambda recorded, _state: heard.append(recorded.sequence))
        projection.on_session(lambda old, new: told.append((old, new)))
        before = projection.state
        other = await move(bus, before)
        await write(other, rejected("c-2"))
        state = await projection.wait(lambda state: state.applied == 4, timeout=5)
        assert (state.session, state.lineage, state.epoch) == ("next", ("first",), 2)
        assert heard == [3, 4]
        assert [old for old, _ in told] == [before]
        assert told[0][1].session == "next"


async def test_a_follower_that_is_ahead_drops_what_its_hub_took_along() -> None:
    bus = MovableBus()
    await write(bus, begun("first", 1, state=State()), rejected("c-1"))
    async with following(bus) as projection:
        behind = projection.state
        await write(bus, rejected("lost"))
        await projection.wait(lambda state: state.applied == 3, timeout=5)
        heard, told = list[int](), list[tuple[State, State]]()
        projection.on_event(lambda recorded, _state: heard.append(recorded.sequence))
        projection.on_session(lambda old, new: told.append((old, new)))
        ahead = projection.state
        waiting = asyncio.create_task(projection.answer(CommandId("c-2"), timeout=5))
        await asyncio.sleep(0)
        other = MemoryBus(make_server(base=behind.applied))
        await begin_session(other, behind, session=SessionId("next"), node=NODE, boot=BOOT, clock=SystemClock())
        await write(other, rejected("c-2"), cause="c-2")
        bus.move(other.server)
        assert (await waiting).reason == "c-2"
        assert projection.state.receipts.get(CommandId("lost")) is None
        assert told == [(ahead, projection.state)]
        assert is_descendant(projection.state, ahead.session)
        assert heard == []


async def test_a_state_of_another_cluster_is_no_descendant() -> None:
    bus = MovableBus()
    await write(bus, begun("first", 1, state=State()))
    async with following(bus) as projection:
        told = list[tuple[State, State]]()
        projection.on_session(lambda old, new: told.append((old, new)))
        await move(bus, State(), session="stranger")
        state = await projection.wait(lambda state: state.session == "stranger", timeout=5)
        assert len(told) == 1
        assert not is_descendant(state, SessionId("first"))


async def test_an_end_of_the_log_that_was_written_anew_is_noticed() -> None:
    bus = MovableBus()
    await write(bus, begun("first", 1, state=State()), cancelled("c-1"), cancelled("c-2"))
    async with following(bus) as projection:
        bus.disconnect()
        # A crash of the machine: the server comes back with less, and others write on.
        crashed = MemoryBus()
        await write(crashed, begun("first", 1, state=State()), cancelled("c-1"), cancelled("other"), cancelled("c-3"))
        told = list[tuple[State, State]]()
        projection.on_session(lambda old, new: told.append((old, new)))
        bus.move(crashed.server)
        await projection.wait(lambda state: state.applied == 4, timeout=5)
        async with following(MemoryBus(crashed.server)) as fresh:
            assert projection.state == fresh.state
        assert told == []


async def test_a_log_that_became_shorter_is_folded_anew() -> None:
    bus = MovableBus()
    await write(bus, begun("first", 1, state=State()), cancelled("c-1"))
    async with following(bus) as projection:
        crashed = MemoryBus()
        await write(crashed, begun("first", 1, state=State()))
        bus.move(crashed.server)
        await projection.wait(lambda state: state.applied == 1, timeout=5)


async def test_another_state_at_the_same_place_is_not_continued() -> None:
    bus = MovableBus()
    await write(bus, begun("first", 1, state=State()), cancelled("ours"))
    async with following(bus) as projection:
        theirs = State(session=SessionId("first"), epoch=1, applied=2)
        await move(bus, theirs)
        state = await projection.wait(lambda state: state.session == "next", timeout=5)
        assert len(state.ended_tasks) == 0


async def test_the_state_of_an_earlier_run_is_where_following_begins() -> None:
    bus = MemoryBus()
    await write(bus, begun("first", 1, state=State()), rejected("c-1"))
    async with following(bus) as projection:
        known = projection.state
    await bus.purge(EVENTS.name, below=3)
    await write(bus, epoch_of("first"))
    again = Projection(bus, known=known)
    task = asyncio.create_task(again.run())
    state = await again.wait(lambda state: state.applied == 3, timeout=5)
    assert state.epoch == 9
    task.cancel()


def epoch_of(session: str) -> e.EpochStarted:
    return e.EpochStarted(session=SessionId(session), epoch=9, base=2, state_hash="", master=NODE)


async def test_a_session_begins_once_and_only_on_an_empty_log_right_after_state() -> None:
    bus = MemoryBus(make_server(base=7))
    projection = Projection(bus, node=NODE, boot=BOOT, known=State(session=SessionId("old"), epoch=3, applied=7))
    await projection.inaugurate(bus, SessionId("new"))
    await projection.inaugurate(bus, SessionId("new"))
    (message,) = await bus.read(EVENTS.name, "exo.events.>")
    record = read_epoch(message)
    assert record == begun("new", 4, state=projection.state)
    assert await load_snapshot(bus) == projection.state
    assert (projection.position.session, projection.position.applied) == ("old", 7)
    with pytest.raises(ConflictError):
        await projection.inaugurate(bus, SessionId("another"))
    with pytest.raises(ConflictError):
        await projection.inaugurate(MemoryBus(make_server(base=6)), SessionId("another"))
