"""What every engine must do, as a base class that the tests of each engine inherit.

An engine's tests say how to `build` one that has not loaded and which texts make it answer at
length; everything else is the same for the scripted engine and for MLX.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from exo.runners.engines.engine import (
    EndStep,
    Engine,
    FaultStep,
    PrefillStep,
    RequestRefusedError,
    TokenStep,
)
from exo.runners.runner import limit
from exo.streams.codes import Code
from exo.streams.ids import ModelId, TaskId
from exo.streams.requests import GenerationRequest, Message, Sampling, TextPart

Build = Callable[[], Engine]
GREEDY = Sampling(temperature=0)


@dataclass
class Outcome:
    """All that an engine said about one sequence."""

    tokens: list[TokenStep] = field(default_factory=list[TokenStep])
    prefill: list[PrefillStep] = field(default_factory=list[PrefillStep])
    end: EndStep | None = None

    @property
    def text(self) -> str:
        return "".join(step.text for step in self.tokens) + (self.end.text if self.end else "")

    @property
    def ids(self) -> list[int]:
        return [step.token for step in self.tokens]


def say(text: str, *, max_tokens: int = 12, **fields: object) -> GenerationRequest:
    """A greedy request of one user message."""
    return GenerationRequest(
        model=ModelId("any"),
        messages=(Message(role="user", content=(TextPart(text),)),),
        sampling=GREEDY,
        max_tokens=max_tokens,
        **fields,  # pyright: ignore[reportArgumentType]
    )


def admit(engine: Engine, task: str, request: GenerationRequest) -> None:
    prompt = engine.render(request)
    engine.admit(TaskId(task), prompt, limit(request, prompt, engine.context_length))


def collect(engine: Engine, outcomes: dict[str, Outcome]) -> None:
    """Do one step and sort what it gave."""
    for step in engine.step():
        outcome = outcomes.setdefault(step.task, Outcome())
        assert outcome.end is None, f"a step after the end: {step}"
        match step:
            case TokenStep():
                outcome.tokens.append(step)
            case PrefillStep():
                outcome.prefill.append(step)
            case EndStep():
                outcome.end = step
            case FaultStep():
                pytest.fail(step.message)


def run(engine: Engine, requests: dict[str, GenerationRequest]) -> dict[str, Outcome]:
    """Answer all requests together."""
    for task, request in requests.items():
        admit(engine, task, request)
    outcomes: dict[str, Outcome] = {}
    while engine.active:
        collect(engine, outcomes)
    return outcomes


def _ignore(_done: int, _total: int) -> None:
    pass


class EngineConformance:
    """Inherit, then override the fixture `build`, and give texts that fit the engine."""

    long_text = "Count from one to a hundred."
    """Makes the engine answer with at least 12 tokens."""
    other_texts = ("Name a colour.", "Say something about the sea, please.", "Why?")
    foreign_text = "Write this down: 世界 😀 ñandú"

    @pytest.fixture(scope="class")
    @classmethod
    def build(cls) -> Build:
        """Give the function that makes an engine that has not loaded yet."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def loaded(cls, build: Build) -> Iterator[Engine]:
        engine = build()
        engine.load(_ignore)
        yield engine
        engine.close()

    @pytest.fixture
    def engine(self, loaded: Engine) -> Iterator[Engine]:
        yield loaded
        assert loaded.active == 0, "a test left a sequence behind"

    def test_loading_tells_its_progress(self, build: Build) -> None:
        engine = build()
        progress: list[tuple[int, int]] = []
        engine.load(lambda done, total: progress.append((done, total)))
        engine.close()
        assert progress == sorted(progress)
        assert progress[-1][0] == progress[-1][1] > 0
        assert len({total for _, total in progress}) == 1

    def test_it_knows_its_context_and_memory(self, engine: Engine) -> None:
        assert engine.context_length > 0
        run(engine, {"a": say(self.long_text, max_tokens=2)})
        assert engine.peak_memory > 0

    def test_a_prompt_holds_the_users_text(self, engine: Engine) -> None:
        prompt = engine.render(say(self.long_text))
        assert self.long_text in prompt.text
        assert prompt.tokens
        assert prompt == engine.render(say(self.long_text))

    def test_a_bare_prompt_meets_no_template(self, engine: Engine) -> None:
        request = GenerationRequest(model=ModelId("any"), prompt="Once upon a time")
        assert engine.render(request).text == "Once upon a time"

    def test_a_refused_prompt_says_why(self, engine: Engine) -> None:
        with pytest.raises(RequestRefusedError) as caught:
            engine.render(say("hi", template_arguments={"messages": []}))
        assert caught.value.code == Code.INVALID_REQUEST
        assert "messages" in caught.value.message

    def test_a_prompt_over_the_context_is_neither_cut_nor_refused(self, engine: Engine) -> None:
        # The reception judges lengths, and whoever only counts tokens wants the number.
        assert len(engine.render(say("word " * (engine.context_length + 1))).tokens) > engine.context_length

    def test_rendering_works_from_many_threads(self, engine: Engine) -> None:
        requests = [say(f"{self.long_text} {number}") for number in range(16)]
        with ThreadPoolExecutor(4) as threads:
            together = list(threads.map(engine.render, requests))
        assert together == [engine.render(request) for request in requests]

    def test_nothing_to_do_is_done_at_once(self, engine: Engine) -> None:
        began = time.monotonic()
        assert engine.step() == []
        assert time.monotonic() - began < 1

    def test_an_answer_ends_at_its_limit(self, engine: Engine) -> None:
        outcome = run(engine, {"a": say(self.long_text, max_tokens=12)})["a"]
        assert len(outcome.tokens) == 12
        assert outcome.end is not None
        assert outcome.end.reason == "length"
        assert outcome.text

    def test_one_token_is_enough(self, engine: Engine) -> None:
        outcome = run(engine, {"a": say(self.long_text, max_tokens=1)})["a"]
        assert len(outcome.tokens) == 1
        assert outcome.end is not None
        assert outcome.end.reason == "length"

    def test_prefill_counts_up_to_the_prompt(self, engine: Engine) -> None:
        request = say(self.long_text * 30, max_tokens=1)
        outcome = run(engine, {"a": request})["a"]
        processed = [step.processed for step in outcome.prefill]
        assert processed == sorted(processed)
        assert all(step.processed <= step.total for step in outcome.prefill)
        assert all(step.total <= len(engine.render(request).tokens) for step in outcome.prefill)

    def test_greedy_answers_repeat(self, engine: Engine) -> None:
        first, second = (run(engine, {"a": say(self.long_text)})["a"] for _ in range(2))
        assert first.ids == second.ids
        assert first.text == second.text

    def test_neighbours_do_not_change_an_answer(self, engine: Engine) -> None:
        texts = (self.long_text, *self.other_texts)
        alone = [run(engine, {"a": say(text)})["a"] for text in texts]
        together = run(engine, {str(number): say(text) for number, text in enumerate(texts)})
        assert [together[str(number)].text for number in range(len(texts))] == [outcome.text for outcome in alone]

    def test_a_sequence_may_join_while_others_run(self, engine: Engine) -> None:
        alone = run(engine, {"late": say(self.other_texts[0])})["late"]
        outcomes: dict[str, Outcome] = {}
        admit(engine, "early", say(self.long_text))
        while not outcomes.get("early", Outcome()).tokens:
            collect(engine, outcomes)
        admit(engine, "late", say(self.other_texts[0]))
        while engine.active:
            collect(engine, outcomes)
        assert outcomes["late"].text == alone.text
        assert len(outcomes["early"].tokens) == 12

    def test_a_dropped_sequence_is_silent_and_its_slot_free(self, engine: Engine) -> None:
        alone = run(engine, {"kept": say(self.long_text)})["kept"]
        outcomes: dict[str, Outcome] = {}
        admit(engine, "kept", say(self.long_text))
        admit(engine, "dropped", say(self.other_texts[1]))
        while not all(outcomes.get(task, Outcome()).tokens for task in ("kept", "dropped")):
            collect(engine, outcomes)
        seen = len(outcomes["dropped"].tokens)
        engine.drop(TaskId("dropped"))
        assert engine.active == 1
        while engine.active:
            collect(engine, outcomes)
        assert len(outcomes["dropped"].tokens) == seen
        assert outcomes["kept"].text == alone.text

    def test_a_sequence_may_be_dropped_before_its_first_step(self, engine: Engine) -> None:
        admit(engine, "a", say(self.long_text))
        assert engine.active == 1
        engine.drop(TaskId("a"))
        assert engine.active == 0
        assert engine.step() == []

    def test_an_unknown_drop_is_ignored(self, engine: Engine) -> None:
        engine.drop(TaskId("never seen"))
        assert engine.active == 0

    def test_a_task_may_come_again(self, engine: Engine) -> None:
        admit(engine, "a", say(self.long_text))
        engine.step()
        engine.drop(TaskId("a"))
        assert run(engine, {"a": say(self.long_text)})["a"].end is not None

    def test_no_piece_holds_half_a_character(self, engine: Engine) -> None:
        outcome = run(engine, {"a": say(self.foreign_text, max_tokens=40)})["a"]
        assert "\ufffd" not in outcome.text

    def test_log_probabilities_have_the_asked_shape(self, engine: Engine) -> None:
        outcome = run(engine, {"a": say(self.long_text, logprobs=True, top_logprobs=3)})["a"]
        logprobs = [step.logprob for step in outcome.tokens if step.logprob is not None]
        assert len(logprobs) == len(outcome.tokens)
        for logprob in logprobs:
            ranks = [other.logprob for other in logprob.top]
            assert len(ranks) == 3
            assert ranks == sorted(ranks, reverse=True)
            assert logprob.logprob <= 0
            assert logprob.logprob == pytest.approx(ranks[0])
        assert b"".join(bytes(logprob.bytes) for logprob in logprobs).decode(errors="ignore").startswith(outcome.text)

    def test_log_probabilities_come_only_when_asked_for(self, engine: Engine) -> None:
        plain = run(engine, {"a": say(self.long_text)})["a"]
        assert all(step.logprob is None for step in plain.tokens)
        chosen = run(engine, {"a": say(self.long_text, logprobs=True)})["a"]
        assert all(step.logprob is not None and step.logprob.top == () for step in chosen.tokens)
        assert plain.ids == chosen.ids

    def test_an_answer_ends_where_the_context_does(self, engine: Engine) -> None:
        request = say("word")
        step = len(engine.render(say("word word")).tokens) - len(engine.render(request).tokens)
        spare = engine.context_length - len(engine.render(request).tokens)
        full = replace(say("word" + " word" * (spare // step - 4)), max_tokens=None)
        room = engine.context_length - len(engine.render(full).tokens)
        outcome = run(engine, {"a": full})["a"]
        assert 0 < len(outcome.tokens) <= room
