"""From a Chat Completions body to the canonical request: what is taken over and what is refused, by field."""

import json
from typing import Any

import pytest

from exo.gateway.dialects.openai_chat.to_request import to_request
from exo.gateway.dialects.openai_chat.types import ChatRequest
from exo.gateway.errors import GatewayError
from exo.streams.requests import GenerationRequest, Message, TextPart, ToolCall
from support.gateway import BODY

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def parse(**fields: Any) -> GenerationRequest:
    return to_request(json.dumps({**BODY, **fields}).encode()).request


def refuse(**fields: Any) -> GatewayError:
    with pytest.raises(GatewayError) as refused:
        parse(**fields)
    assert refused.value.status == 400
    return refused.value


def messages(*given: dict[str, Any]) -> tuple[Message, ...]:
    return parse(messages=list(given)).messages


def test_nulls_everywhere_mean_nothing_was_said() -> None:
    names = set(ChatRequest.__struct_fields__) - {"model", "messages"} | {"user", "metadata", "store", "service_tier"}
    assert parse(**dict.fromkeys(names)) == parse()


def test_unknown_fields_are_ignored() -> None:
    ignored = {"user": "u", "metadata": {"a": 1}, "store": True, "verbosity": "low", "modalities": ["text"], "zzz": [1]}
    assert parse(**ignored) == parse()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 3}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "assistant", "content": ""}]}, "messages"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0]",
        ),
        ({"messages": [{"role": "user", "content": {"type": "input_audio"}}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": ["text"]}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, "messages[0].tool_calls[0].function.name"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"min_p": -1}, "min_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_completion_tokens": 0, "max_tokens": 5}, "max_completion_tokens"),
        ({"n": 2}, "n"),
        ({"n": 0}, "n"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": [1]}, "stop[0]"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": {}}}, "response_format.type"),
        ({"functions": [{"name": "look"}]}, "functions"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice.function.name",
        ),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}}, "tool_choice"),
        ({"reasoning_effort": "very"}, "reasoning_effort"),
    ],
)
def test_a_refusal_names_its_field(fields: dict[str, Any], param: str) -> None:
    assert refuse(**fields).param == param


def test_system_messages_become_one_at_the_beginning() -> None:
    converted = messages(
        {"role": "user", "content": "a"},
        {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
        {"role": "user", "content": "b"},
        {"role": "system", "content": "be kind"},
    )
    assert converted[0] == Message(role="system", content=(TextPart("be brief\n\nbe kind"),))
    assert [message.role for message in converted] == ["system", "user", "user"]


def test_a_trailing_assistant_message_is_continued() -> None:
    answered = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert parse(messages=answered).continue_final_message
    assert not parse(messages=[*answered, {"role": "user", "content": "c"}]).continue_final_message


def test_a_tool_loop_comes_through() -> None:
    converted = messages(
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a tree"}]},
    )
    assert converted[1].tool_calls == (ToolCall(id="c1", name="look", arguments='{"a":1}'),)
    assert converted[1].reasoning == "hm"
    assert (converted[2].role, converted[2].tool_call_id, converted[2].text()) == ("tool", "c1", "a tree")


def test_arguments_may_be_an_object_and_the_old_function_call_is_read() -> None:
    converted = messages(
        {"role": "user", "content": "look"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": {"a": 1}}}]},
        {"role": "assistant", "function_call": {"name": "see", "arguments": "{}"}},
        {"role": "function", "name": "see", "content": "a tree"},
    )
    assert converted[1].tool_calls[0].arguments == '{"a":1}'
    assert converted[2].tool_calls[0].name == "see"
    assert (converted[3].role, converted[3].name) == ("tool", "see")


def test_the_newer_limit_wins() -> None:
    assert parse(max_tokens=9, max_completion_tokens=5).max_tokens == 5
    assert parse(max_tokens=9, max_completion_tokens=None).max_tokens == 9
    assert parse().max_tokens is None


def test_limits_beyond_every_context_are_no_limit_rather_than_an_error() -> None:
    for most in (10**12, 2**63, 10**30):
        request = parse(max_tokens=most, top_k=most)
        assert (request.max_tokens, request.sampling.top_k) == (2**31, 2**31)


def test_tools_are_hidden_when_none_may_be_called() -> None:
    assert parse(tools=[TOOL]).tools[0].name == "look"
    assert parse(tools=[TOOL], tool_choice="none").tools == ()
    assert parse(tools=[TOOL], tool_choice="auto", parallel_tool_calls=False).tool_choice.parallel is False


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (None, None)),
        ({"enable_thinking": True}, (True, "medium")),
        ({"enable_thinking": False}, (False, "none")),
        ({"reasoning_effort": "none"}, (False, "none")),
        ({"reasoning_effort": "xhigh"}, (True, "xhigh")),
        ({"reasoning_effort": "low", "enable_thinking": False}, (False, "low")),
        ({"chat_template_kwargs": {"enable_thinking": False}}, (False, "none")),
    ],
)
def test_the_switches_for_thinking(fields: dict[str, Any], expected: tuple[bool | None, str | None]) -> None:
    request = parse(**fields)
    assert (request.thinking, request.reasoning_effort) == expected


def test_sampling_is_taken_over() -> None:
    request = parse(top_k=40, min_p=0.05, repetition_penalty=1.1, seed=-1, logit_bias={"7": -100}, stop=["a", "", "b"])
    assert (request.sampling.top_k, request.sampling.min_p, request.sampling.repetition_penalty) == (40, 0.05, 1.1)
    assert request.sampling.seed == 2**64 - 1
    assert request.sampling.logit_bias == {7: -100}
    assert request.stop == ("a", "b")


def test_a_template_gets_its_arguments_but_not_ours() -> None:
    kwargs = {"style": "short", "messages": [], "add_generation_prompt": False}
    assert parse(chat_template_kwargs=kwargs).template_arguments == {"style": "short"}
