"""Bodies of Chat Completions as clients send them.

Lenient on purpose: every field may be null or absent, unknown ones are dropped, and values whose
errors should name their field are checked by `to_request`.
"""

from typing import Any

import msgspec


class FunctionCall(msgspec.Struct, frozen=True):
    """The call inside a tool call; some clients send arguments as an object."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ToolCallIn(msgspec.Struct, frozen=True):
    """A call that the assistant made earlier."""

    id: str | None = None
    type: str | None = None
    function: FunctionCall | None = None


class MessageIn(msgspec.Struct, frozen=True):
    """One message; `content` is text, a part, a list of parts, or nothing."""

    role: str | None = None
    content: str | dict[str, Any] | list[dict[str, Any]] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCallIn] | None = None
    tool_call_id: str | None = None
    function_call: FunctionCall | None = None


class FunctionIn(msgspec.Struct, frozen=True):
    """A function on offer."""

    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolIn(msgspec.Struct, frozen=True):
    """A tool on offer."""

    type: str | None = None
    function: FunctionIn | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """Only with `stream`."""

    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /v1/chat/completions`."""

    model: str | None = None
    messages: list[MessageIn] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ToolIn] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
