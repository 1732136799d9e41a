"""Thinking, tool calls and content in a model's text."""

import json

import pytest

from exo.runners.text.parse.parser import Marking, TextParser
from exo.runners.text.parse.pieces import CallArguments, CallEnd, CallStart, Content, Thought
from support.requests import WEATHER

MARKING = Marking(
    think_start="<think>",
    think_end="</think>",
    tool_start="<tool_call>",
    tool_end="</tool_call>",
    tool_format="json_tools",
    tools=(WEATHER,),
)
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
Parsed = tuple[str, str, list[tuple[str, str]]]


def parse(text: str, *, size: int = 1, marking: Marking = MARKING, reasoning_open: bool = False) -> Parsed:
    """Feed in pieces of `size` characters; give (content, thought, calls)."""
    parser = TextParser(marking, reasoning_open=reasoning_open)
    pieces = [piece for at in range(0, len(text), size) for piece in parser.feed(text[at : at + size])]
    content, thought, calls = "", "", []
    for piece in [*pieces, *parser.finish()]:
        match piece:
            case Content(text=said):
                content += said
            case Thought(text=said):
                thought += said
            case CallStart(name=name):
                calls.append((name, ""))
            case CallArguments(text=said):
                calls[-1] = (calls[-1][0], calls[-1][1] + said)
            case CallEnd():
                pass
    return content, thought, calls


BERN = ("weather", '{"city": "Bern"}')


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello", ("Hello", "", [])),
        ("a < b\n<thin\n", ("a < b\n<thin\n", "", [])),
        ("<think>\nhm\n</think>\n\nyes", ("yes", "hm", [])),
        ("<think>hm</think>yes", ("yes", "hm", [])),
        ("<think>\n\n a \n\n</think>\n\n\n b ", ("\n b ", "\n a \n", [])),
        ("<think>never ends", ("", "never ends", [])),
        ("a<think>b</think>c<think>d</think>e", ("ace", "bd", [])),
        (CALL, ("", "", [BERN])),
        ("Let me look.\n" + CALL, ("Let me look.", "", [BERN])),
        (f"{CALL}\n{CALL}\n", ("", "", [BERN, BERN])),
        (f"{CALL} and then", (" and then", "", [BERN])),
        (f"<think>hm</think>\n\n{CALL}", ("", "hm", [BERN])),
        ('<tool_call>{"name":"weather","arguments":{}}</tool_call>', ("", "", [("weather", "{}")])),
        ('<tool_call>{"name":"weather","parameters":{"a":[]}}</tool_call>', ("", "", [("weather", '{"a":[]}')])),
        ('<tool_call>{"name":"weather"}</tool_call>', ("", "", [("weather", "{}")])),
        (
            '<tool_call>{"name":"weather","arguments":{"a":"</tool_call>"}}</tool_call>!',
            ("!", "", [("weather", '{"a":"</tool_call>"}')]),
        ),
    ],
)
def test_text_is_split_however_it_is_cut(text: str, expected: Parsed, size: int) -> None:
    assert parse(text, size=size) == expected


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>what?</tool_call>",
        '<tool_call>{"name": "weather", "arguments": {city: 1}}</tool_call> ok',
        '<tool_call>{"name": "weather", "arguments": 5}</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>["weather"]</tool_call>',
        '<tool_call>{"name": "wea',
        '<tool_call>{"name": "we\\xther", "arguments": {"a": 1}}</tool_call>',
        "<tool_call>",
        "x\n<tool_call>[]</tool_call>\n",
    ],
)
def test_a_malformed_call_is_content(text: str, size: int) -> None:
    assert parse(text, size=size) == (text, "", [])


def test_arguments_before_the_name_are_read_as_a_whole() -> None:
    _, _, calls = parse('<tool_call>{"arguments": {"city": "Bern"}, "name": "weather"}</tool_call>')
    assert [(name, json.loads(arguments)) for name, arguments in calls] == [("weather", {"city": "Bern"})]


def test_arguments_stream_before_the_call_is_whole() -> None:
    parser = TextParser(MARKING)
    given = parser.feed('<tool_call>{"name": "weather", "arguments": {"city": "Be')
    assert given == [CallStart("weather"), CallArguments('{"city": "Be')]
    assert parser.finish() == []


def test_json_that_breaks_late_is_passed_on_as_it_is() -> None:
    broken = '<tool_call>{"name": "weather", "arguments": {"a": 1, oops}}</tool_call> after'
    assert parse(broken) == (" after", "", [("weather", '{"a": 1, oops}}')])


def test_a_thinking_block_that_the_template_opened() -> None:
    assert parse("\nhm\n</think>\n\nyes", reasoning_open=True) == ("yes", "hm", [])


def test_without_markers_everything_is_content() -> None:
    text = f"<think>hm</think>{CALL}"
    assert parse(text, marking=Marking()) == (text, "", [])


def test_calls_without_an_end_marker_end_with_the_answer() -> None:
    marking = Marking(tool_start="[TOOL_CALLS]", tool_format="mistral", tools=(WEATHER,))
    text = 'ok[TOOL_CALLS]weather[ARGS]{"city": "Bern"}weather[ARGS]{"city": "Basel"}'
    assert parse(text, marking=marking) == ("ok", "", [BERN, ("weather", '{"city": "Basel"}')])


def test_other_formats_go_through_their_own_parser() -> None:
    marking = Marking(tool_start="<tool_call>", tool_end="</tool_call>", tool_format="qwen3_coder", tools=(WEATHER,))
    good = "<tool_call><function=weather><parameter=city>\nBern\n</parameter></function></tool_call>"
    assert parse(good, marking=marking) == ("", "", [BERN])
    assert parse("<tool_call>nothing</tool_call>", marking=marking) == ("<tool_call>nothing</tool_call>", "", [])


def test_a_format_that_nobody_knows_is_content() -> None:
    marking = Marking(tool_start="<tool_call>", tool_end="</tool_call>", tool_format="no_such", tools=(WEATHER,))
    assert parse(CALL, marking=marking) == (CALL, "", [])


def test_nothing_is_held_back_without_need() -> None:
    parser = TextParser(MARKING)
    assert parser.feed("Hello") == [Content("Hello")]
    assert parser.feed(" a<") == [Content(" a")]
    assert parser.feed("b") == [Content("<b")]
