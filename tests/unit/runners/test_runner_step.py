"""The engine loop with the scripted engine: schedule, run, postprocess."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from exo.runners.admission import Admission, Breach
from exo.runners.engines.fake import ScriptedEngine
from exo.runners.reception import Reception
from exo.runners.runner import Runner, limit
from exo.streams.chunks import Admitted, Chunk, Done, Failed, Rejected, Text
from exo.streams.codes import Code
from exo.streams.ids import TaskId
from exo.streams.pipe import Cancel, Counted, CountTokens, Emitted
from exo.streams.requests import GenerationRequest
from support.requests import ask, generate, message, prompt, start_scripted
from support.runner_pipe import LocalPipe


@dataclass
class House:
    """A runner without its process; the test is the engine thread."""

    engine: ScriptedEngine
    admission: Admission
    reception: Reception
    runner: Runner
    pipe: LocalPipe

    def send(self, task: str, request: GenerationRequest, **fields: int) -> list[Chunk]:
        """Hand a request in and wait for its first chunk."""
        self.reception.receive(generate(task, request, **fields))
        chunks = self.pipe.frames.wait_for_chunks(task)
        if isinstance(chunks[0], Admitted):
            self._wait_until_queued(task)
        return chunks

    def _wait_until_queued(self, task: str) -> None:
        # The first chunk leaves just before the ticket is queued.
        changed = self.admission._changed
        with changed:
            assert changed.wait_for(lambda: any(ticket.task == task for ticket in self.admission._waiting), 10)

    def answer_all(self) -> None:
        while self.admission.running or self.admission.queued:
            self.runner.step()

    def said(self, task: str) -> str:
        return "".join(chunk.text for chunk in self.pipe.frames.wait_for_end(task) if isinstance(chunk, Text))


def build(*, max_batch: int = 4, max_queue: int = 8, context_length: int = 512, **script: float) -> House:
    pipe = LocalPipe()
    engine = ScriptedEngine(start_scripted(context_length=context_length, script=script))
    admission = Admission(max_batch=max_batch, max_queue=max_queue)
    runner = Runner(engine, admission, pipe.outbox)
    return House(engine, admission, Reception(engine, admission, pipe.outbox), runner, pipe)


@pytest.fixture
def houses() -> Iterator[list[House]]:
    houses: list[House] = []
    yield houses
    for house in houses:
        house.reception.close()
        house.pipe.close()


@pytest.fixture
def house(houses: list[House]) -> House:
    houses.append(build())
    return houses[0]


def test_an_answer_from_the_first_to_the_last_chunk(house: House) -> None:
    first = house.send("a", ask("[[say:Hello you]]"))[0]
    assert isinstance(first, Admitted)
    assert (first.prompt_tokens, first.queue_position) == (len(house.engine.render(ask("[[say:Hello you]]")).tokens), 0)
    house.answer_all()
    chunks = house.pipe.frames.wait_for_end("a")
    assert house.said("a") == "Hello you"
    done = chunks[-1]
    assert isinstance(done, Done)
    assert (done.reason, done.usage.prompt, done.usage.completion) == ("stop", first.prompt_tokens, 3)
    assert (house.runner.generated_tokens, house.runner.prompt_tokens) == (3, first.prompt_tokens)


def test_all_chunks_of_a_step_are_one_frame(house: House) -> None:
    for task in "abc":
        house.send(task, ask("[[say:one two]]"))
    frames = len(house.pipe.frames.all)
    house.runner.step()
    for task in "abc":
        house.pipe.frames.wait_for_chunks(task, 2)
    emitted = [frame for frame in house.pipe.frames.all[frames:] if isinstance(frame, Emitted)]
    assert [[task for task, _ in frame.chunks] for frame in emitted] == [["a", "b", "c"]]
    house.answer_all()


def test_requests_beyond_the_batch_wait_their_turn(houses: list[House]) -> None:
    houses.append(house := build(max_batch=1, max_queue=2))
    positions = [house.send(task, ask("[[say:one two]]"))[0] for task in "abc"]
    assert [chunk.queue_position for chunk in positions if isinstance(chunk, Admitted)] == [0, 1, 2]
    refused = house.send("d", ask("hi"))
    assert isinstance(refused[0], Rejected)
    assert refused[0].code == Code.OVERLOADED
    house.runner.step()
    assert (house.admission.running, house.engine.active) == (1, 1)
    house.answer_all()
    assert [house.said(task) for task in "abc"] == ["one two"] * 3


def test_a_prompt_over_the_context_is_refused_with_numbers(houses: list[House]) -> None:
    houses.append(house := build(context_length=100))
    request = ask("word " * 200)
    length = len(house.engine.render(request).tokens)
    (refused,) = house.send("a", request)
    assert isinstance(refused, Rejected)
    assert refused.code == Code.CONTEXT_LENGTH_EXCEEDED
    assert f"{length} tokens > 99 maximum" in refused.message
    assert house.admission.queued == 0


def test_an_answer_may_fill_the_context_and_no_more(houses: list[House]) -> None:
    houses.append(house := build(context_length=120))
    request = ask("[[say:" + "word " * 60 + "]]")
    room = 120 - len(house.engine.render(request).tokens)
    house.send("a", request)
    house.send("b", ask("[[say:" + "word " * 60 + "]]", max_tokens=100_000))
    house.answer_all()
    for task in "ab":
        done = house.pipe.frames.wait_for_end(task)[-1]
        assert isinstance(done, Done)
        assert (done.reason, done.usage.completion) == ("length", room)


def test_a_refused_prompt_is_rejected(house: House) -> None:
    (refused,) = house.send("a", ask("hi", template_arguments={"messages": []}))
    assert isinstance(refused, Rejected)
    assert refused.code == Code.INVALID_REQUEST


def test_an_empty_prompt_is_rejected(house: House) -> None:
    (refused,) = house.send("a", GenerationRequest(model=ask("").model, prompt=""))
    assert isinstance(refused, Rejected)
    assert refused.code == Code.INVALID_REQUEST


def test_a_cancelled_answer_ends_at_the_next_step(house: House) -> None:
    house.send("a", ask("[[say:one two three four]]"))
    house.send("b", ask("[[say:one two three four]]"))
    house.runner.step()
    house.admission.cancel(Cancel(task=TaskId("a"), code=Code.INSTANCE_REMOVED, message="gone"))
    house.runner.step()
    chunks = house.pipe.frames.wait_for_end("a")
    assert chunks[-1] == Failed(1, 2, Code.INSTANCE_REMOVED, "gone")
    assert house.engine.active == 1
    house.answer_all()
    assert house.said("b") == "one two three four"


def test_a_cancelled_request_that_still_waits_never_starts(houses: list[House]) -> None:
    houses.append(house := build(max_batch=1))
    for task in "ab":
        house.send(task, ask("[[say:one two]]"))
    house.admission.cancel(Cancel(task=TaskId("b")))
    house.answer_all()
    assert house.pipe.frames.wait_for_end("b")[1:] == [
        Failed(1, 1, Code.CANCELLED, "the request was cancelled"),
    ]


def test_a_cancel_before_its_request_refuses_it(house: House) -> None:
    house.admission.cancel(Cancel(task=TaskId("a")))
    (refused,) = house.send("a", ask("hi"))
    assert isinstance(refused, Rejected)
    assert refused.code == Code.CANCELLED


def test_a_deadline_ends_an_answer(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    house.send("a", ask("[[say:one two three]]"), time_limit=60_000)
    house.runner.step()
    # The time of day may be set; it measures nothing.
    monkeypatch.setattr(time, "time", lambda: now + 1e9)
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    house.runner.step()
    last = house.pipe.frames.wait_for_end("a")[-1]
    assert isinstance(last, Failed)
    assert (last.index, last.code) == (2, Code.DEADLINE_EXCEEDED)


def test_a_stop_string_frees_the_slot(house: House) -> None:
    house.send("a", ask("[[say:one two END three]]", stop=("END",)))
    house.answer_all()
    assert house.engine.active == 0
    assert house.said("a") == "one two "


def test_a_fault_of_one_sequence_spares_its_neighbours(houses: list[House]) -> None:
    houses.append(house := build(raise_after_tokens=2))
    house.send("a", ask("[[say:one two three]]"))
    house.send("b", ask("[[say:one]]"))
    house.answer_all()
    last = house.pipe.frames.wait_for_end("a")[-1]
    assert isinstance(last, Failed)
    assert last.code == Code.ENGINE_FAILED
    assert house.said("b") == "one"


def test_a_broken_engine_ends_every_answer(houses: list[House]) -> None:
    houses.append(house := build(max_batch=1, break_after_tokens=1))
    for task in "ab":
        house.send(task, ask("[[say:one two three]]"))
    house.runner.step()
    with pytest.raises(RuntimeError, match="break_after_tokens"):
        house.runner.step()
    house.runner.abandon(Breach(Code.RUNNER_FAILED, "broken"))
    for task in "ab":
        last = house.pipe.frames.wait_for_end(task)[-1]
        assert isinstance(last, Failed)
        assert last.code == Code.RUNNER_FAILED


def test_a_request_that_comes_twice_is_answered_once(house: House) -> None:
    house.send("a", ask("[[say:one]]"))
    house.reception.receive(generate("a", ask("[[say:one]]")))
    house.answer_all()
    assert house.said("a") == "one"


def test_tokens_are_counted_without_generating(house: House) -> None:
    house.reception.count(CountTokens(call=7, request=ask("Hello")))
    house.reception.count(CountTokens(call=8, request=ask("hi", template_arguments={"tools": 1})))
    house.reception.close()
    house.pipe.outbox.emit([(TaskId("mark"), Admitted(1, 0, 0))])
    house.pipe.frames.wait_for_chunks("mark")
    counted = {frame.call: frame for frame in house.pipe.frames.all if isinstance(frame, Counted)}
    assert counted[7] == Counted(call=7, tokens=len(house.engine.render(ask("Hello")).tokens))
    assert (counted[8].tokens, counted[8].code) == (0, Code.INVALID_REQUEST)


@pytest.mark.parametrize(("asked", "given"), [(None, 7), (5, 5), (100, 7)])
def test_answers_are_limited_to_what_the_context_leaves(asked: int | None, given: int) -> None:
    request = GenerationRequest(model=ask("").model, messages=(message("hi"),), max_tokens=asked)
    assert limit(request, prompt(3), 10).max_tokens == given
