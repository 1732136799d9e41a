"""Chunks: kept, published, published again; ends told only when the broker has everything."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from exo.broker.memory import MemoryBus
from exo.services.clock import FakeClock
from exo.services.worker import tokens
from exo.services.worker.ends import End
from exo.services.worker.tokens import KEEP_ENDED, TokenBook, TokenPublisher
from exo.streams import subjects
from exo.streams.chunks import Admitted, Chunk, Done, Failed, Rejected, Text, Usage
from exo.streams.codec import decode_chunk
from exo.streams.events import TaskFailed, TaskFinished
from exo.streams.ids import TaskId
from exo.streams.layout import TOKENS
from support.services import NODE

TASK = TaskId("task-1")
ANSWER: tuple[Chunk, ...] = (Admitted(1, 0, 5), Text(1, 1, "a\nb"), Done(1, 2, "stop", Usage(prompt=5, completion=1)))


def make_book(keep_bytes: int = 10_000) -> tuple[TokenBook, FakeClock]:
    clock = FakeClock()
    return TokenBook(NODE, clock=clock, keep_bytes=keep_bytes), clock


def add(book: TokenBook, *chunks: Chunk, task: str = TASK) -> list[tuple[str, bytes] | None]:
    return [book.add(TaskId(task), chunk) for chunk in chunks]


def kept(book: TokenBook) -> dict[str, list[Chunk]]:
    return {subject: [decode_chunk(payload) for payload in payloads] for subject, payloads in book.everything()}


def test_everything_is_kept_in_order() -> None:
    book, _ = make_book()
    add(book, *ANSWER)
    assert kept(book) == {f"exo.tokens.{NODE}.{TASK}": list(ANSWER)}


def test_nothing_comes_after_the_end() -> None:
    book, _ = make_book()
    add(book, *ANSWER)
    assert add(book, Text(1, 3, "late"), Failed(1, 3, "x", "y")) == [None, None]


def test_ended_answers_are_forgotten_after_a_while() -> None:
    book, _ = make_book()
    clock = book._clock
    assert isinstance(clock, FakeClock)
    add(book, *ANSWER)
    add(book, *ANSWER[:2], task="running")
    asyncio.run(clock.advance(KEEP_ENDED + 1))
    assert list(kept(book)) == [f"exo.tokens.{NODE}.running"]


def test_the_oldest_ended_answers_go_first_when_room_is_short() -> None:
    book, _ = make_book(keep_bytes=400)
    add(book, *ANSWER[:2], task="running")
    for number in range(20):
        add(book, *ANSWER, task=f"task-{number}")
    subjects_kept = list(kept(book))
    assert f"exo.tokens.{NODE}.running" in subjects_kept
    assert f"exo.tokens.{NODE}.task-19" in subjects_kept
    assert f"exo.tokens.{NODE}.task-0" not in subjects_kept
    assert book.bytes <= 400


def test_a_broken_answer_ends_after_its_last_chunk() -> None:
    book, _ = make_book()
    assert book.break_off(TASK, attempt=2, code="x", message="y") == Rejected(2, 0, "x", "y")
    add(book, *ANSWER[:2])
    assert book.break_off(TASK, attempt=1, code="x", message="y") == Failed(1, 2, "x", "y")


class Setup:
    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.ends: list[TaskFinished | TaskFailed] = []
        self.told = asyncio.Event()
        self.clock = FakeClock()
        self.book = TokenBook(NODE, clock=self.clock)
        self.publisher = TokenPublisher(self.bus, self.book, node=NODE, clock=self.clock, on_end=self.take)

    def take(self, end: End) -> None:
        self.ends.append(end.fact)
        self.told.set()

    async def stored(self, task: TaskId = TASK) -> list[Chunk]:
        messages = await self.bus.read(TOKENS.name, subjects.tokens(NODE, task))
        return [decode_chunk(message.payload) for message in messages]

    async def publish(self, *chunks: Chunk) -> list[bool]:
        return [await self.publisher.publish(TASK, chunk) for chunk in chunks]


@asynccontextmanager
async def publishing() -> AsyncGenerator[Setup]:
    setup = Setup()
    task = asyncio.create_task(setup.publisher.run())
    await asyncio.sleep(0)
    try:
        yield setup
    finally:
        task.cancel()


async def test_chunks_go_out_at_once_and_the_end_is_told() -> None:
    async with publishing() as setup:
        assert await setup.publish(*ANSWER) == [False, False, True]
        assert await setup.stored() == list(ANSWER)
        await asyncio.wait_for(setup.told.wait(), 5)
    finished = TaskFinished(node=NODE, task=TASK, last_index=2, reason="stop", usage=Usage(prompt=5, completion=1))
    assert setup.ends == [finished]


@pytest.mark.parametrize("end", [Rejected(1, 0, "code", "why"), Failed(1, 0, "code", "why")])
async def test_a_refusal_and_a_failure_are_told_as_such(end: Chunk) -> None:
    async with publishing() as setup:
        await setup.publish(end)
        await asyncio.wait_for(setup.told.wait(), 5)
    assert setup.ends == [TaskFailed(node=NODE, task=TASK, last_index=0, code="code", message="why")]


async def test_a_second_end_is_neither_published_nor_told() -> None:
    async with publishing() as setup:
        await setup.publish(*ANSWER, Failed(1, 3, "x", "y"))
        await asyncio.wait_for(setup.told.wait(), 5)
        assert await setup.stored() == list(ANSWER)
    assert len(setup.ends) == 1


async def test_after_a_restart_of_the_broker_every_chunk_is_there_again() -> None:
    async with publishing() as setup:
        await setup.publish(*ANSWER[:2])
        setup.bus.disconnect()
        setup.bus.server.lose_memory()
        setup.bus.reconnect()
        await setup.publish(ANSWER[2])
        await asyncio.wait_for(setup.told.wait(), 5)
        assert {chunk.index: chunk for chunk in await setup.stored()} == dict(enumerate(ANSWER))


async def test_no_end_is_told_while_the_broker_may_lack_a_chunk() -> None:
    async with publishing() as setup:
        setup.bus.disconnect()
        await setup.publish(*ANSWER)
        await setup.clock.advance(3)
        assert setup.ends == []
        setup.bus.server.lose_memory()
        setup.bus.reconnect()
        await setup.clock.advance(1)
        await asyncio.wait_for(setup.told.wait(), 5)
        assert {chunk.index for chunk in await setup.stored()} == {0, 1, 2}
    assert len(setup.ends) == 1


async def test_a_broker_that_stays_away_does_not_hold_up_the_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_DRAIN_TIMEOUT", 0.05)
    setup = Setup()
    setup.bus.disconnect()
    await setup.publish(*ANSWER)
    async with asyncio.timeout(5):
        await setup.publisher.drain()
    assert setup.ends == []
