"""What the scripted engine answers: directives in the user's text, else an echo. Pure.

`[[say:TEXT]]`, `[[think:TEXT]]` and `[[tool:NAME {json}]]` in the last user message that holds text.
They are cut into turns after each run of tool directives; the number of assistant messages since
that message picks the turn; when they are used up the answer is `done`.
"""

import json
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from exo.streams.requests import GenerationRequest, Message

DONE = "done"
ECHOED = 2000
"""Characters of the user's text that an echo repeats at most."""


class Directive(msgspec.Struct, frozen=True):
    """One order. `text` is what to say or think; for a tool the arguments as they were written."""

    kind: Literal["say", "think", "tool"]
    text: str
    name: str = ""


def read_answer(request: GenerationRequest) -> list[Directive]:
    """Give what this request is to be answered with."""
    text, turn = _find_user_text(request)
    directives = read_directives(text)
    if not directives:
        return [Directive("say", f"You said: {text[:ECHOED]}" if text else DONE)]
    turns = cut_turns(directives)
    return turns[turn] if turn < len(turns) else [Directive("say", DONE)]


def _find_user_text(request: GenerationRequest) -> tuple[str, int]:
    """Give the last text of a user and the number of assistant messages since then."""
    if request.prompt is not None:
        return request.prompt, 0
    messages = request.messages[:-1] if continues_answer(request) else request.messages
    assistants = 0
    for message in reversed(messages):
        if message.role == "user" and (text := message.text()).strip():
            return text, assistants
        assistants += message.role == "assistant"
    return "", 0


def continues_answer(request: GenerationRequest) -> bool:
    """Whether the last message is the beginning of the answer."""
    return request.continue_final_message and bool(request.messages) and request.messages[-1].role == "assistant"


def get_answer_start(messages: Sequence[Message]) -> str:
    """Give the text of an answer that is to be continued."""
    return messages[-1].text()


def cut_turns(directives: Sequence[Directive]) -> list[list[Directive]]:
    """Cut after each run of tool directives: then the caller has to answer."""
    turns: list[list[Directive]] = [[]]
    for directive in directives:
        if turns[-1] and turns[-1][-1].kind == "tool" and directive.kind != "tool":
            turns.append([])
        turns[-1].append(directive)
    return turns


_OPENING = re.compile(r"\[\[(?:(say|think):|(tool):\s*([^\s\[\]{}]+))")
_OBJECT = re.compile(r"\s*(?=\{)")
_CLOSING = re.compile(r"\s*\]\]")
_BRACKET = re.compile(r"[\[\]]")
_LAST_CLOSING = re.compile(r"\]\](?!\])")
_json = json.JSONDecoder(strict=False)


def read_directives(text: str) -> list[Directive]:
    """Find the directives of a text; an opening without an end is none."""
    found: list[Directive] = []
    position = 0
    while opening := _OPENING.search(text, position):
        start = opening.end()
        end, position = _find_tool_end(text, start) if opening[2] else _find_text_end(text, start)
        if end < 0:
            position = start
        elif opening[2]:
            found.append(Directive("tool", text[start:end].strip() or "{}", opening[3]))
        else:
            found.append(Directive("say" if opening[1] == "say" else "think", text[start:end]))
    return found


def _find_tool_end(text: str, start: int) -> tuple[int, int]:
    """Find the closing brackets behind the JSON of a tool directive, wherever it has brackets itself."""
    if value := _OBJECT.match(text, start):
        try:
            _, end = _json.raw_decode(text, value.end())
        except ValueError:
            return _find_text_end(text, start)
        if closing := _CLOSING.match(text, end):
            return end, closing.end()
    return _find_text_end(text, start)


def _find_text_end(text: str, start: int) -> tuple[int, int]:
    """Give (end of the text, position behind the brackets), or (-1, -1).

    Brackets inside the text may be balanced; else it ends at the first pair of closing brackets.
    """
    depth = 0
    for bracket in _BRACKET.finditer(text, start):
        position = bracket.start()
        if bracket[0] == "[":
            depth += 1
        elif depth:
            depth -= 1
        elif text.startswith("]]", position):
            return position, position + 2
    first = _LAST_CLOSING.search(text, start)
    return (first.start(), first.end()) if first else (-1, -1)
