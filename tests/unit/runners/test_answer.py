"""Engine steps become numbered chunks: text, thinking, calls, stop strings, endings, usage."""

from typing import Any

import pytest

from exo.runners.admission import Ticket
from exo.runners.answer import Answer
from exo.runners.engines.engine import EndStep, Markers, PrefillStep, Prompt, TokenStep
from exo.streams.chunks import (
    Chunk,
    Done,
    Failed,
    Prefill,
    Reasoning,
    Text,
    TokenLogprob,
    ToolCallArguments,
    ToolCallStarted,
    Usage,
)
from exo.streams.ids import TaskId
from exo.streams.requests import GenerationRequest, ToolChoice
from support.requests import WEATHER, ask, generate

TASK = TaskId("0123456789abcdef0123456789abcdef")
MARKERS = Markers("<think>", "</think>", "<tool_call>", "</tool_call>", "json_tools")
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'


def _answer(*, reasoning_open: bool = False, **fields: Any) -> Answer:
    ticket = Ticket(generate(TASK, ask("hi", **fields)), number=1, arrived=0.0)
    return Answer(ticket, Prompt((1, 2, 3), "hi", reasoning_open), MARKERS)


def _token(text: str, logprob: TokenLogprob | None = None) -> TokenStep:
    return TokenStep(TASK, text, 7, logprob)


def _feed(answer: Answer, *texts: str, end: str = "", reason: str = "stop") -> list[Chunk]:
    """Feed tokens until the answer is over, then its end; give all chunks."""
    chunks: list[Chunk] = []
    for text in texts:
        answer.take_token(_token(text))
        chunks += answer.drain()
        if answer.is_over:
            break
    if not answer.is_over:
        answer.take_end(EndStep(TASK, reason, end))  # pyright: ignore[reportArgumentType]
    answer.finish(peak_memory=5)
    return [*chunks, *answer.drain()]


def _said(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, Text))


def _done(chunks: list[Chunk]) -> Done:
    last = chunks[-1]
    assert isinstance(last, Done)
    assert not any(isinstance(chunk, Done) for chunk in chunks[:-1])
    return last


def test_each_step_is_one_chunk_and_the_numbers_have_no_gap() -> None:
    chunks = _feed(_answer(), "Hel", "lo", " you", end="!")
    assert [chunk.text for chunk in chunks if isinstance(chunk, Text)] == ["Hel", "lo", " you", "!"]
    assert [chunk.index for chunk in chunks] == [1, 2, 3, 4, 5]
    done = _done(chunks)
    assert (done.reason, done.stop_sequence) == ("stop", None)
    assert done.usage == Usage(prompt=3, completion=3)
    assert done.statistics.peak_memory == 5


def test_text_of_one_step_is_joined() -> None:
    answer = _answer()
    answer.take_token(_token("a"))
    answer.take_token(_token("b"))
    assert answer.drain() == [Text(1, 1, "ab", 2)]


def test_prefill_is_passed_on() -> None:
    answer = _answer()
    answer.take_prefill(PrefillStep(TASK, 2, 3))
    assert answer.drain() == [Prefill(1, 1, 2, 3)]


def test_thinking_is_told_apart_and_counted() -> None:
    chunks = _feed(_answer(), "<think>", "\n", "hm", "\n", "</think>", "\n\n", "yes")
    assert [chunk for chunk in chunks if isinstance(chunk, Reasoning)] == [Reasoning(1, 1, "hm", 2)]
    assert _said(chunks) == "yes"
    assert _done(chunks).usage == Usage(prompt=3, completion=7, reasoning=5)


def test_an_answer_may_begin_inside_a_thinking_block() -> None:
    chunks = _feed(_answer(reasoning_open=True), "hm", "</think>", "yes")
    assert [type(chunk) for chunk in chunks] == [Reasoning, Text, Done]
    assert _done(chunks).usage.reasoning == 2


@pytest.mark.parametrize("cut", [1, 2, 3, 8])
def test_a_stop_string_ends_the_answer_before_it(cut: int) -> None:
    text = "one two END three"
    chunks = _feed(_answer(stop=("END", "never")), *(text[at : at + cut] for at in range(0, len(text), cut)))
    assert _said(chunks) == "one two "
    assert (_done(chunks).reason, _done(chunks).stop_sequence) == ("stop", "END")


def test_what_only_looked_like_a_stop_string_is_given_at_the_end() -> None:
    chunks = _feed(_answer(stop=("END",)), "the E", "N")
    assert _said(chunks) == "the EN"
    assert _done(chunks).stop_sequence is None


def test_stop_strings_do_not_apply_to_thinking() -> None:
    chunks = _feed(_answer(stop=("END",)), "<think>the END</think>", "of it")
    assert [chunk.text for chunk in chunks if isinstance(chunk, Reasoning)] == ["the END"]
    assert _said(chunks) == "of it"


def test_text_that_a_stop_string_held_back_comes_before_a_call() -> None:
    chunks = _feed(_answer(stop=("END",), tools=(WEATHER,)), "E", CALL)
    assert [type(chunk) for chunk in chunks] == [Text, ToolCallStarted, ToolCallArguments, Done]
    assert _said(chunks) == "E"


def test_a_call_has_an_id_and_ends_with_its_own_reason() -> None:
    chunks = _feed(_answer(tools=(WEATHER,)), "Well.", "\n", *CALL)
    started = [chunk for chunk in chunks if isinstance(chunk, ToolCallStarted)]
    assert [(chunk.position, chunk.call_id, chunk.name) for chunk in started] == [
        (0, "call_0123456789abcdef01230000", "weather")
    ]
    arguments = [chunk for chunk in chunks if isinstance(chunk, ToolCallArguments)]
    assert "".join(chunk.text for chunk in arguments) == '{"city": "Bern"}'
    assert len(arguments) > 3
    assert _said(chunks) == "Well."
    assert _done(chunks).reason == "tool_calls"


def test_parallel_calls_are_numbered() -> None:
    chunks = _feed(_answer(tools=(WEATHER,)), CALL, "\n", CALL)
    assert [chunk.position for chunk in chunks if isinstance(chunk, ToolCallStarted)] == [0, 1]


def test_without_parallel_calls_the_first_ends_the_answer() -> None:
    answer = _answer(tools=(WEATHER,), tool_choice=ToolChoice(parallel=False))
    answer.take_token(_token(f"{CALL}\n{CALL} and more"))
    assert answer.is_over
    answer.finish(peak_memory=0)
    chunks = answer.drain()
    assert [type(chunk) for chunk in chunks] == [ToolCallStarted, ToolCallArguments, Done]
    assert _done(chunks).reason == "tool_calls"


@pytest.mark.parametrize("fields", [{}, {"tools": (WEATHER,), "tool_choice": ToolChoice(mode="none")}])
def test_who_may_not_call_gets_text(fields: dict[str, Any]) -> None:
    chunks = _feed(_answer(**fields), CALL)
    assert _said(chunks) == CALL
    assert _done(chunks).reason == "stop"


def test_after_a_plain_prompt_nothing_is_parsed() -> None:
    request = GenerationRequest(model=ask("").model, prompt="<think>", tools=(WEATHER,))
    ticket = Ticket(generate(TASK, request), number=1, arrived=0.0)
    chunks = _feed(Answer(ticket, Prompt((1, 2, 3), "<think>", reasoning_open=True), MARKERS), "hm</think>", CALL)
    assert _said(chunks) == f"hm</think>{CALL}"


def test_a_malformed_call_is_text() -> None:
    chunks = _feed(_answer(tools=(WEATHER,)), "<tool_call>", "what?", "</tool_call>")
    assert _said(chunks) == "<tool_call>what?</tool_call>"
    assert _done(chunks).reason == "stop"


def test_a_call_that_is_cut_off_ends_by_length() -> None:
    chunks = _feed(_answer(tools=(WEATHER,)), CALL[:60], reason="length")
    assert isinstance(chunks[0], ToolCallStarted)
    assert _done(chunks).reason == "length"


def _logprob(text: str) -> TokenLogprob:
    return TokenLogprob(text, -0.5, tuple(text.encode()))


def test_log_probabilities_go_with_their_text() -> None:
    answer = _answer(logprobs=True, stop=("END",))
    chunks: list[Chunk] = []
    for text in ("<think>", "hm", "</think>", "a", "E", "X"):
        answer.take_token(_token(text, _logprob(text)))
        chunks += answer.drain()
    answer.take_token(_token("", _logprob("?")))
    answer.take_end(EndStep(TASK, "length"))
    answer.finish(peak_memory=0)
    chunks += answer.drain()
    said = [chunk for chunk in chunks if isinstance(chunk, Text)]
    assert [(chunk.text, [logprob.token for logprob in chunk.logprobs]) for chunk in said] == [
        ("a", ["a"]),
        ("EX", ["E", "X"]),
        ("", ["?"]),
    ]
    assert _done(chunks).index == len(chunks)


def test_log_probabilities_of_a_stop_string_are_not_given() -> None:
    answer = _answer(logprobs=True, stop=("END",))
    for text in ("a", "E", "ND"):
        answer.take_token(_token(text, _logprob(text)))
    assert answer.is_over
    answer.finish(peak_memory=0)
    said = [chunk for chunk in answer.drain() if isinstance(chunk, Text)]
    assert [logprob.token for chunk in said for logprob in chunk.logprobs] == ["a"]


def test_a_failure_is_the_last_chunk() -> None:
    answer = _answer()
    answer.take_token(_token("a"))
    answer.fail("cancelled", "enough")
    assert answer.drain() == [Text(1, 1, "a", 1), Failed(1, 2, "cancelled", "enough")]


def test_an_answer_without_text_is_only_done() -> None:
    chunks = _feed(_answer())
    assert [type(chunk) for chunk in chunks] == [Done]
    assert _done(chunks).usage == Usage(prompt=3)
