"""Messages of a Chat Completions body to canonical ones. Pure.

All system and developer messages become one leading system message: most templates accept nothing
else. A trailing assistant message is continued, not answered.
"""

from typing import Any, Final

import msgspec

from exo.gateway.bodies import invalid
from exo.gateway.dialects.openai_chat.types import FunctionCall, MessageIn, ToolCallIn
from exo.streams.requests import Message, Role, TextPart, ToolCall

_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TEXT_PARTS: Final = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_MEDIA_PARTS: Final = {
    "image_url",
    "input_image",
    "image",
    "input_audio",
    "audio_url",
    "video_url",
    "file",
    "input_file",
}


def to_messages(messages: list[MessageIn] | None) -> tuple[tuple[Message, ...], bool]:
    """Convert; gives the messages and whether the last one is to be continued."""
    if not messages:
        raise invalid("`messages` must hold at least one message.", "messages")
    converted = [_to_message(message, f"messages[{number}]") for number, message in enumerate(messages)]
    system = tuple(part for message in converted if message.role == "system" for part in message.content)
    rest = [message for message in converted if message.role != "system" and not _is_empty(message)]
    leading = [Message(role="system", content=(TextPart(_join(system)),))] if system else []
    if not leading and not rest:
        raise invalid("`messages` must hold at least one message with content.", "messages")
    continues = bool(rest) and rest[-1].role == "assistant" and not rest[-1].tool_calls
    return (*leading, *rest), continues


def _join(parts: tuple[TextPart, ...]) -> str:
    return "\n\n".join(part.text for part in parts)


def _is_empty(message: Message) -> bool:
    """Whether an assistant's turn says nothing at all, as some clients send after a cancelled answer."""
    return message.role == "assistant" and not (message.tool_calls or message.reasoning or message.text())


def _to_message(message: MessageIn, where: str) -> Message:
    if message.role is None or message.role not in _ROLES:
        known = ", ".join(_ROLES)
        raise invalid(f"The role must be one of {known}, not {message.role!r}.", f"{where}.role")
    role = _ROLES[message.role]
    content = _to_parts(message.content, f"{where}.content")
    if role == "user" and message.content is None:
        raise invalid("A user's message needs content.", f"{where}.content")
    if role == "assistant" and not content and message.refusal:
        content = (TextPart(message.refusal),)
    return Message(
        role=role,
        content=content,
        reasoning=message.reasoning_content or message.reasoning or "",
        name=message.name or "",
        tool_calls=_to_calls(message, where) if role == "assistant" else (),
        tool_call_id=message.tool_call_id or "",
    )


def _to_parts(content: str | dict[str, Any] | list[dict[str, Any]] | None, where: str) -> tuple[TextPart, ...]:
    match content:
        case None:
            return ()
        case str(text):
            return (TextPart(text),) if text else ()
        case dict(part):
            return (_to_part(part, where),)
        case list(parts):
            return tuple(_to_part(part, f"{where}[{number}]") for number, part in enumerate(parts))


def _to_part(part: dict[str, Any], where: str) -> TextPart:
    kind = str(part.get("type"))
    if kind in _MEDIA_PARTS:
        raise invalid(f"Content of type {kind!r} is not supported: this version serves text only.", where)
    key = _TEXT_PARTS.get(kind)
    if key is None:
        raise invalid(f"Unknown type of content: {kind!r}.", f"{where}.type")
    text = part.get(key)
    if not isinstance(text, str):
        raise invalid(f"A part of type {kind!r} needs the string `{key}`.", f"{where}.{key}")
    return TextPart(text)


def _to_calls(message: MessageIn, where: str) -> tuple[ToolCall, ...]:
    calls = [_to_call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(message.tool_calls or [])]
    if message.function_call is not None:
        calls.append(_to_call(ToolCallIn(function=message.function_call), f"{where}.function_call"))
    return tuple(calls)


def _to_call(call: ToolCallIn, where: str) -> ToolCall:
    function = call.function or FunctionCall()
    if not function.name:
        raise invalid("A tool call needs the name of its function.", f"{where}.function.name")
    arguments = function.arguments
    if isinstance(arguments, dict):
        arguments = msgspec.json.encode(arguments).decode()
    return ToolCall(id=call.id or f"call_{function.name}", name=function.name, arguments=arguments or "{}")
