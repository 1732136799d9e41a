"""From a Chat Completions body to the canonical request. Pure.

Nothing is dropped in silence that would change the answer: what cannot be honoured is refused.
"""

from typing import Any, Final

from exo.gateway.bodies import decode_body, invalid
from exo.gateway.dialects.dialect import Parsed
from exo.gateway.dialects.openai_chat.messages import to_messages
from exo.gateway.dialects.openai_chat.sampling import to_max_tokens, to_sampling, to_stop, to_top_logprobs
from exo.gateway.dialects.openai_chat.tools import to_tool_choice, to_tools
from exo.gateway.dialects.openai_chat.types import ChatRequest
from exo.streams.ids import ModelId
from exo.streams.requests import GenerationRequest

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh")


def to_request(body: bytes) -> Parsed:
    """Read, check and convert a body; raises `invalid_request` naming the field."""
    chat = decode_body(ChatRequest, body)
    if not chat.model:
        raise invalid("You must name a model.", "model")
    _refuse_unsupported(chat)
    messages, continues = to_messages(chat.messages)
    thinking, effort = _to_thinking(chat)
    request = GenerationRequest(
        model=ModelId(chat.model),
        messages=messages,
        tools=to_tools(chat),
        tool_choice=to_tool_choice(chat),
        sampling=to_sampling(chat),
        max_tokens=to_max_tokens(chat),
        stop=to_stop(chat.stop),
        logprobs=bool(chat.logprobs),
        top_logprobs=to_top_logprobs(chat),
        thinking=thinking,
        reasoning_effort=effort,
        template_arguments=_template_arguments(chat),
        continue_final_message=continues,
    )
    return Parsed(request, stream=bool(chat.stream), options=_to_options(chat))


def _refuse_unsupported(chat: ChatRequest) -> None:
    if chat.n not in {None, 1}:
        raise invalid("Only n=1 is supported: send one request for each answer you want.", "n")
    if chat.functions or chat.function_call is not None:
        raise invalid("`functions` and `function_call` are retired: use `tools` and `tool_choice`.", "functions")
    if chat.stream_options is not None and not chat.stream:
        raise invalid("`stream_options` is only allowed with `stream`: true.", "stream_options")
    kind = str((chat.response_format or {}).get("type", "text"))
    if kind in {"json_object", "json_schema"}:
        raise invalid(
            f"response_format {kind!r} is not supported by this version: it cannot promise valid JSON yet. "
            "Ask for JSON in the prompt and leave response_format out.",
            "response_format",
        )
    if kind != "text":
        raise invalid(
            f"response_format must be text, json_object or json_schema, not {kind!r}.", "response_format.type"
        )


def _to_thinking(chat: ChatRequest) -> tuple[bool | None, str | None]:
    """Resolve the switches for thinking: effort `none` is off, any other effort is on."""
    if chat.reasoning_effort is not None and chat.reasoning_effort not in EFFORTS:
        raise invalid(f"reasoning_effort must be one of {', '.join(EFFORTS)}.", "reasoning_effort")
    wanted = chat.enable_thinking
    if wanted is None:
        asked = (chat.chat_template_kwargs or {}).get("enable_thinking")
        wanted = asked if isinstance(asked, bool) else None
    effort = chat.reasoning_effort
    if effort is None and wanted is not None:
        effort = "medium" if wanted else "none"
    if wanted is None and effort is not None:
        wanted = effort != "none"
    return wanted, effort


def _template_arguments(chat: ChatRequest) -> dict[str, Any]:
    reserved = {"messages", "tools", "add_generation_prompt", "continue_final_message", "enable_thinking"}
    return {key: value for key, value in (chat.chat_template_kwargs or {}).items() if key not in reserved}


def _to_options(chat: ChatRequest) -> dict[str, Any]:
    """Keep what the rendering of the answer depends on."""
    options: dict[str, Any] = {}
    if chat.stream_options is not None and chat.stream_options.include_usage:
        options["include_usage"] = True
    if chat.parallel_tool_calls is False:
        options["one_tool_call"] = True
    return options
