"""What the scripted engine answers to which conversation."""

import pytest

from exo.runners.engines.scripted.directives import Directive, cut_turns, read_answer, read_directives
from exo.streams.requests import GenerationRequest, Message, TextPart, ToolCall
from support.requests import MODEL, ask, message

SAY_A = Directive("say", "a")
TOOL_X = Directive("tool", "{}", "x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[say:a]]", [SAY_A]),
        ("before [[say:a]] after", [SAY_A]),
        ("[[say:]]", [Directive("say", "")]),
        ("[[think:why]][[say:a]]", [Directive("think", "why"), SAY_A]),
        ("[[say: two\nlines 世界 😀 ]]", [Directive("say", " two\nlines 世界 😀 ")]),
        ("[[say:a[0] and ]]", [Directive("say", "a[0] and ")]),
        ("[[say:a[0]]]", [Directive("say", "a[0]")]),
        ("[[say:[[1,2],[3,4]]]] [[say:a]]", [Directive("say", "[[1,2],[3,4]]"), SAY_A]),
        ("[[say:a[b]] [[say:a]]", [Directive("say", "a[b"), SAY_A]),
        ("[[say:a]", []),
        ("[say:a]", []),
        ("[[shout:a]]", []),
        ("[[tool:x]]", [TOOL_X]),
        ("[[tool:x {}]]", [TOOL_X]),
        ('[[tool:x {"a": {"b": [1, [2]]}}]]', [Directive("tool", '{"a": {"b": [1, [2]]}}', "x")]),
        ('[[tool:x {"a": "]] }"} ]]', [Directive("tool", '{"a": "]] }"}', "x")]),
        ("[[tool:x {bad}]]", [Directive("tool", "{bad}", "x")]),
        ("[[tool:my_tool-1.b\n{}]]", [Directive("tool", "{}", "my_tool-1.b")]),
    ],
)
def test_directives_are_read(text: str, expected: list[Directive]) -> None:
    assert read_directives(text) == expected


def test_turns_are_cut_after_each_run_of_tools() -> None:
    assert cut_turns([SAY_A, TOOL_X, TOOL_X, SAY_A, TOOL_X]) == [[SAY_A, TOOL_X, TOOL_X], [SAY_A, TOOL_X]]


def _after(*roles: str) -> GenerationRequest:
    first = message("[[say:a]][[tool:x]][[say:b]]")
    call = ToolCall(id="1", name="x", arguments="{}")
    more = {
        "assistant": message("a", role="assistant", tool_calls=(call,)),
        "tool": message("[[say:not this]]", role="tool", tool_call_id="1"),
        "system": message("[[say:nor this]]", role="system"),
        "silent": message("  "),
    }
    return GenerationRequest(model=MODEL, messages=(first, *(more[role] for role in roles)))


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ((), [SAY_A, TOOL_X]),
        (("system",), [SAY_A, TOOL_X]),
        (("assistant", "tool"), [Directive("say", "b")]),
        (("assistant", "tool", "silent", "system"), [Directive("say", "b")]),
        (("assistant", "tool", "assistant"), [Directive("say", "done")]),
    ],
)
def test_the_assistant_messages_since_the_last_text_of_a_user_pick_the_turn(
    roles: tuple[str, ...], expected: list[Directive]
) -> None:
    assert read_answer(_after(*roles)) == expected


def test_a_later_user_text_starts_anew() -> None:
    request = GenerationRequest(
        model=MODEL, messages=(message("[[say:old]]"), message("old", role="assistant"), message("[[say:new]]"))
    )
    assert read_answer(request) == [Directive("say", "new")]


def test_an_answer_to_be_continued_is_no_turn_of_its_own() -> None:
    request = GenerationRequest(
        model=MODEL,
        messages=(message("[[say:Hello you]]"), message("Hello", role="assistant")),
        continue_final_message=True,
    )
    assert read_answer(request) == [Directive("say", "Hello you")]


def test_parts_of_a_message_are_one_text() -> None:
    request = GenerationRequest(
        model=MODEL, messages=(message("x"), Message(role="user", content=(TextPart("[[say:a"), TextPart("b]]"))))
    )
    assert read_answer(request) == [Directive("say", "a\nb")]


def test_without_directives_the_user_is_echoed() -> None:
    assert read_answer(ask("How are you?")) == [Directive("say", "You said: How are you?")]
    assert len(read_answer(ask("x" * 1_000_000))[0].text) < 3000


def test_without_any_text_it_is_done() -> None:
    assert read_answer(GenerationRequest(model=MODEL, messages=(message("be brief", role="system"),))) == [
        Directive("say", "done")
    ]


def test_a_bare_prompt_counts_as_the_users_text() -> None:
    assert read_answer(GenerationRequest(model=MODEL, prompt="[[say:a]]")) == [SAY_A]
