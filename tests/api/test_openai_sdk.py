"""The official OpenAI SDK against a running node: answers, streams, tools, errors, hanging up."""

import asyncio
from collections.abc import Iterable
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionFunctionToolParam, ChatCompletionMessageParam

from support.node import NodeProcess, wait_for

MODEL = "exo/scripted"
LOOK: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}


def ask(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def text_of(chunks: Iterable[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def test_a_whole_answer(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model=MODEL, messages=ask("[[say:All is well.]]"))
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    assert answer.choices[0].message.content == "All is well."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_with_usage(sdk: openai.OpenAI) -> None:
    chunks = list(
        sdk.chat.completions.create(
            model=MODEL,
            messages=ask("[[say:One two three.]]"),
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert text_of(chunks) == "One two three."
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


def test_the_stream_helper_accumulates_the_same_answer(sdk: openai.OpenAI) -> None:
    with sdk.chat.completions.stream(model=MODEL, messages=ask("[[say:One two three.]]")) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == "One two three."


async def test_many_streams_of_the_async_client(node: NodeProcess) -> None:
    async with openai.AsyncOpenAI(base_url=f"{node.url}/v1", api_key="none", max_retries=0, timeout=60) as client:

        async def stream(number: int) -> str:
            messages = ask(f"[[say:Answer number {number}.]]")
            chunks = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
            return text_of([chunk async for chunk in chunks])

        texts = await asyncio.gather(*(stream(number) for number in range(20)))
    assert texts == [f"Answer number {number}." for number in range(20)]


def test_reasoning_is_kept_apart(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model=MODEL, messages=ask("[[think:Let me see.]][[say:Four.]]"))
    message: Any = answer.choices[0].message
    assert message.content == "Four."
    assert message.reasoning_content.strip() == "Let me see."
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.reasoning_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_loop(sdk: openai.OpenAI, *, stream: bool) -> None:
    messages = ask('[[tool:look {"place": "garden"}]][[say:There is a tree.]]')
    call = call_tool(sdk, messages, stream=stream)
    assert (call.function.name, call.function.arguments.replace(" ", "")) == ("look", '{"place":"garden"}')
    assistant: ChatCompletionMessageParam = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
        ],
    }
    result: ChatCompletionMessageParam = {"role": "tool", "tool_call_id": call.id, "content": "a tree"}
    answer = sdk.chat.completions.create(model=MODEL, messages=[*messages, assistant, result], tools=[LOOK])
    assert answer.choices[0].message.content == "There is a tree."
    assert answer.choices[0].finish_reason == "stop"


def call_tool(sdk: openai.OpenAI, messages: list[ChatCompletionMessageParam], *, stream: bool) -> Any:
    """The one call that the model makes, whole or put together from its pieces."""
    if not stream:
        choice = sdk.chat.completions.create(model=MODEL, messages=messages, tools=[LOOK]).choices[0]
    else:
        with sdk.chat.completions.stream(model=MODEL, messages=messages, tools=[LOOK]) as pieces:
            for _ in pieces:
                pass
            choice = pieces.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    # A stream's first delta says "", long before it is known that a call will come.
    assert choice.message.content == ("" if stream else None)
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    return call


def test_stop_ends_the_text_before_the_match(sdk: openai.OpenAI) -> None:
    for stream in (False, True):
        messages = ask("[[say:one two STOP three]]")
        answer: Any = sdk.chat.completions.create(model=MODEL, messages=messages, stop=["STOP"], stream=stream)
        text = text_of(answer) if stream else answer.choices[0].message.content
        assert text == "one two "


def test_a_limit_cuts_the_answer(sdk: openai.OpenAI) -> None:
    several: list[dict[str, Any]] = [
        {"max_tokens": 1},
        {"max_completion_tokens": 3},
        {"max_tokens": 9, "max_completion_tokens": 2},
    ]
    for limits in several:
        answer = sdk.chat.completions.create(model=MODEL, messages=ask("[[say:one two three four five six]]"), **limits)
        expected = limits.get("max_completion_tokens", limits.get("max_tokens"))
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == expected


def test_models_are_listed_and_found(sdk: openai.OpenAI) -> None:
    assert MODEL in [model.id for model in sdk.models.list()]
    assert sdk.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError) as refused:
        sdk.models.retrieve("org/nothing")
    assert refused.value.code == "model_not_found"


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_are_the_exceptions_of_the_sdk(sdk: openai.OpenAI, *, stream: bool) -> None:
    def create(**fields: Any) -> None:
        given: dict[str, Any] = {"model": MODEL, "messages": ask("[[say:x]]"), "stream": stream, **fields}
        sdk.chat.completions.create(**given)

    with pytest.raises(openai.NotFoundError) as unknown:
        create(model="org/nothing")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as empty:
        create(messages=[])
    assert empty.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as absurd:
        create(temperature=-1)
    assert absurd.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        create(messages=ask("word " * 20_000))
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as image:
        create(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}])
    assert image.value.param == "messages[0].content[0]"


def test_hanging_up_stops_the_generation(sdk: openai.OpenAI, node: NodeProcess) -> None:
    words = " ".join(f"w{number}" for number in range(500))
    stream = sdk.chat.completions.create(model=MODEL, messages=ask(f"[[say:{words}]]"), stream=True)
    task = next(iter(stream)).id.removeprefix("chatcmpl-")
    assert task in node.state()["tasks"]
    stream.close()
    wait_for(lambda: task not in node.state()["tasks"], seconds=5, what="the end of the task", node=node)
    pages = node.state()["ended_tasks"]["pages"]
    ended = next(page[task] for page in pages if task in page)
    assert ended["outcome"] == "cancelled"


def test_silence_before_the_first_token_does_not_trouble_the_sdk(sdk: openai.OpenAI) -> None:
    """Comments stand between frames with ids, which the SDK must not take for events."""
    stream = sdk.chat.completions.create(model=MODEL, messages=ask("hello " * 300), max_tokens=5, stream=True)
    assert text_of(stream)
