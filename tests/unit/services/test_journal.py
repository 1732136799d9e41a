"""Facts reach the log once and in order, whatever happens to the broker."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from exo.broker.bus import Ack, Headers
from exo.broker.errors import BusUnavailableError, PayloadTooLargeError, StreamFullError
from exo.broker.memory import MemoryBus
from exo.services.clock import SystemClock
from exo.services.journal import Journal
from exo.streams import events as e
from exo.streams.codec import decode_event
from exo.streams.ids import TaskId
from exo.streams.layout import EVENTS
from support.services import BOOT, NODE


class StubbornBus(MemoryBus):
    """Fails the next appends, before or after the message was stored."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[tuple[bool, Exception]] = []

    async def append(self, subject: str, payload: bytes, *, headers: Headers | None = None) -> Ack:
        stored, error = self.failures.pop(0) if self.failures else (True, None)
        ack = await super().append(subject, payload, headers=headers) if stored else Ack("", 0)
        if error is not None:
            raise error
        return ack


class QuickClock(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@asynccontextmanager
async def writing(bus: MemoryBus) -> AsyncGenerator[Journal]:
    journal = Journal(bus, clock=QuickClock(), node=NODE, boot=BOOT)
    task = asyncio.create_task(journal.run())
    try:
        yield journal
    finally:
        task.cancel()


def failed(name: str) -> e.TaskFailed:
    return e.TaskFailed(node=NODE, task=TaskId(name), last_index=0, code="x", message="")


async def read(bus: MemoryBus) -> list[e.Envelope]:
    messages = await bus.read(EVENTS.name, "exo.events.>")
    recorded = [decode_event(message.payload, sequence=message.sequence) for message in messages]
    return [item.envelope for item in recorded if item.envelope]


async def test_facts_are_written_in_order_under_their_owner() -> None:
    bus = MemoryBus()
    async with writing(bus) as journal:
        for name in ("a", "b", "c"):
            journal.record(failed(name))
        await journal.drain(timeout=5)
    written = await read(bus)
    assert [envelope.event for envelope in written] == [failed("a"), failed("b"), failed("c")]
    assert {(envelope.actor, envelope.boot, envelope.epoch) for envelope in written} == {(NODE, BOOT, 0)}
    assert len({envelope.id for envelope in written}) == 3


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("error", [BusUnavailableError("gone"), StreamFullError("full")])
async def test_a_write_that_failed_is_tried_again_and_stored_once(stored: bool, error: Exception) -> None:
    bus = StubbornBus()
    bus.failures = [(stored, error), (stored, error)]
    async with writing(bus) as journal:
        journal.record(failed("a"))
        journal.record(failed("b"))
        await journal.drain(timeout=5)
    assert [envelope.event for envelope in await read(bus)] == [failed("a"), failed("b")]


async def test_a_fact_that_no_server_takes_does_not_stop_the_others() -> None:
    bus = StubbornBus()
    bus.failures = [(False, PayloadTooLargeError(9, limit=8))]
    async with writing(bus) as journal:
        journal.record(failed("a"))
        journal.record(failed("b"))
        await journal.drain(timeout=5)
    assert [envelope.event for envelope in await read(bus)] == [failed("b")]


async def test_waiting_for_the_log_has_an_end() -> None:
    bus = MemoryBus()
    bus.disconnect()
    async with writing(bus) as journal:
        journal.record(failed("a"))
        with pytest.raises(TimeoutError):
            await journal.drain(timeout=0.01)
