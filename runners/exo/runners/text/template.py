"""The conversation as a prompt, through the model's own chat template.

What a template can do - a system message anywhere, first or not at all; tools - is found out by
rendering probes, never from the model's name. Engines hand in the function that renders (their
tokenizer's, or `compile_template`) and map `TemplateRefused` to a refusal of that one request.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from exo.streams.requests import GenerationRequest, Message, TextPart, Tool

Render = Callable[..., str]
"""Called as `apply_chat_template` of transformers, with messages and keywords; gives text."""

_SYSTEM, _FIRST, _ANSWER, _LAST = "probe-system", "probe-first", "probe-answer", "probe-last"
_RESERVED = frozenset({
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "max_length",
    "messages", "padding", "processor_kwargs", "return_assistant_tokens_mask", "return_dict", "return_tensors",
    "tokenize", "tokenizer_kwargs", "tools", "truncation",
})  # fmt: skip
"""Names that steer the rendering itself and are not a client's to set."""


class TemplateRefused(Exception):
    """Raised when the template cannot express the request; the message is meant for the client."""


class Rendered(msgspec.Struct, frozen=True):
    """A prompt as text; `special` when the tokenizer is to add its own first token."""

    text: str
    special: bool


class ChatTemplate:
    """A model's template and what it can do. Thread-safe."""

    def __init__(self, render: Render | None) -> None:
        """`render` is None for a model without a template."""
        self._render = render
        self.system: Literal["anywhere", "first", "nowhere"] = self._probe_system()
        self.takes_tools = self._shows([_say("user", _FIRST)], _LAST, tools=[_describe_tool(Tool(name=_LAST))])

    def render(self, request: GenerationRequest) -> Rendered:
        """Give the prompt of a request. Raises `TemplateRefused`."""
        if request.prompt is not None:
            return Rendered(request.prompt, special=True)
        if self._render is None:
            raise TemplateRefused("this model has no chat template: send a plain prompt instead of messages")
        keywords: dict[str, Any] = {
            "add_generation_prompt": not request.continue_final_message,
            "continue_final_message": request.continue_final_message,
            **self._choose_tools(request),
            **_choose_thinking(request),
            **_check_arguments(request.template_arguments),
        }
        messages = [_convert(message) for message in place_system(request.messages, self.system)]
        return Rendered(self._apply(messages, keywords), special=False)

    def _apply(self, messages: list[dict[str, Any]], keywords: Mapping[str, Any]) -> str:
        assert self._render is not None
        try:
            return self._render(messages, **keywords)
        except Exception as error:
            # A template is a foreign program: whatever it raises is its answer to these messages.
            raise TemplateRefused(f"the model's chat template refuses these messages: {error}") from error

    def _choose_tools(self, request: GenerationRequest) -> dict[str, Any]:
        tools = choose_tools(request)
        if tools and not self.takes_tools:
            raise TemplateRefused("this model's chat template has no place for tools: send the request without them")
        return {"tools": [_describe_tool(tool) for tool in tools]} if tools else {}

    def _probe_system(self) -> Literal["anywhere", "first", "nowhere"]:
        first, last = _say("user", _FIRST), _say("user", _LAST)
        if self._shows([first, _say("assistant", _ANSWER), _say("system", _SYSTEM), last], _ANSWER, _SYSTEM, _LAST):
            return "anywhere"
        return "first" if self._shows([_say("system", _SYSTEM), first], _SYSTEM, _FIRST) else "nowhere"

    def _shows(self, messages: list[dict[str, Any]], *texts: str, **keywords: object) -> bool:
        """Say whether the template renders the messages with these texts in this order."""
        if self._render is None:
            return False
        try:
            text = self._apply(messages, {"add_generation_prompt": True, **keywords})
        except TemplateRefused:
            return False
        places = [text.find(wanted) for wanted in texts]
        return min(places) >= 0 and places == sorted(places)


def place_system(messages: Sequence[Message], system: Literal["anywhere", "first", "nowhere"]) -> Sequence[Message]:
    """Move system messages to where the template wants them, their text joined by blank lines. Pure."""
    wanted = system == "anywhere" or (system == "first" and all(message.role != "system" for message in messages[1:]))
    instructions = tuple(part for message in messages if message.role == "system" for part in message.content)
    if wanted or not instructions:
        return messages
    text = "\n\n".join(part.text for part in instructions)
    others = [message for message in messages if message.role != "system"]
    place = next((at for at, message in enumerate(others) if message.role == "user"), None)
    if system == "first" or place is None:
        role = "system" if system == "first" else "user"
        return [Message(role=role, content=(TextPart(text),)), *others]
    joined = f"{text}\n\n{others[place].text()}"
    others[place] = msgspec.structs.replace(others[place], content=(TextPart(joined),))
    return others


def choose_tools(request: GenerationRequest) -> tuple[Tool, ...]:
    """Give the tools to tell the model of: none, the named one, or all. Pure."""
    choice = request.tool_choice
    if choice.mode == "none":
        return ()
    if choice.mode == "named":
        return tuple(tool for tool in request.tools if tool.name == choice.name)
    return request.tools


def compile_template(source: str, **special_tokens: str) -> Render:
    """Make a template text renderable without a tokenizer."""
    from transformers.utils.chat_template_utils import render_jinja_template

    def render(messages: list[dict[str, Any]], **keywords: Any) -> str:
        (text,), _ = render_jinja_template([messages], chat_template=source, **special_tokens, **keywords)
        return text

    return render


def _convert(message: Message) -> dict[str, Any]:
    converted: dict[str, Any] = {"role": message.role, "content": message.text()}
    if message.name:
        converted["name"] = message.name
    if message.reasoning:
        # transformers repeats it under the other names that templates use.
        converted["reasoning_content"] = message.reasoning
    if message.tool_call_id:
        converted["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        converted["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _read_arguments(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return converted


def _choose_thinking(request: GenerationRequest) -> dict[str, Any]:
    keywords: dict[str, Any] = {}
    if request.thinking is not None:
        # The two names in use; a template reads the one it knows.
        keywords |= {"enable_thinking": request.thinking, "thinking": request.thinking}
    if request.reasoning_effort is not None:
        keywords["reasoning_effort"] = request.reasoning_effort
    return keywords


def _check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    if reserved := sorted(_RESERVED & arguments.keys()):
        raise TemplateRefused(f"template arguments cannot set {', '.join(reserved)}")
    return arguments


def _describe_tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _read_arguments(arguments: str) -> object:
    """Give a call's arguments as an object, which templates iterate over; text that is none stays text."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


def _say(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}
