"""Chat Completions over HTTP: whole and streamed answers, refusals before the first byte."""

import json
from typing import Any

import pytest

from exo.streams.chunks import (
    Admitted,
    Done,
    Failed,
    Prefill,
    Reasoning,
    Rejected,
    Text,
    TokenLogprob,
    ToolCallArguments,
    ToolCallStarted,
    Usage,
)
from exo.streams.codes import Code
from exo.streams.commands import SubmitTask
from exo.streams.requests import GenerationRequest
from support.fake_cluster import FakeCluster, always, say
from support.gateway import BODY, Client, read_stream

USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 2,
    "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}


async def test_a_whole_answer_has_every_key(client: Client) -> None:
    response = await client.post("/v1/chat/completions", json=BODY)
    answer = response.json()
    assert response.status_code == 200
    assert answer.pop("id").startswith("chatcmpl-")
    assert answer.pop("created") > 1_700_000_000
    assert answer == {
        "object": "chat.completion",
        "model": "org/model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello world", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
        "system_fingerprint": None,
        "service_tier": None,
    }


async def test_a_stream_is_role_text_finish_done(client: Client) -> None:
    stream, raw = await read_stream(client, BODY)
    assert [frame["choices"][0]["delta"] for frame in stream.frames] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Hello"},
        {"content": " world"},
        {},
    ]
    assert [frame["choices"][0]["finish_reason"] for frame in stream.frames] == [None, None, None, "stop"]
    assert {frame["object"] for frame in stream.frames} == {"chat.completion.chunk"}
    assert len({(frame["id"], frame["created"], frame["model"]) for frame in stream.frames}) == 1
    assert all("usage" not in frame for frame in stream.frames)
    assert all(frame["choices"][0]["logprobs"] is None for frame in stream.frames)
    assert stream.ids == ["0.0", "1.0", "2.0", "3.0", "3.1"]
    assert ": generation_stats {" in raw
    assert raw.endswith("data: [DONE]\n\n")


async def test_usage_comes_in_a_chunk_of_its_own_when_asked_for(client: Client) -> None:
    stream, _ = await read_stream(client, {**BODY, "stream_options": {"include_usage": True}})
    assert [frame["usage"] for frame in stream.frames] == [None, None, None, None, USAGE]
    assert stream.frames[-1]["choices"] == []


async def test_reasoning_and_tool_calls_are_kept_apart(cluster: FakeCluster, client: Client) -> None:
    cluster.script = always(
        [
            Admitted(1, 0, 5),
            Reasoning(1, 1, "hm"),
            ToolCallStarted(1, 2, 0, "call_1", "look"),
            ToolCallArguments(1, 3, 0, '{"a":'),
            ToolCallArguments(1, 4, 0, "1}"),
            ToolCallStarted(1, 5, 1, "call_2", "look"),
            ToolCallArguments(1, 6, 1, "{}"),
            Done(1, 7, "tool_calls", Usage(prompt=5, completion=9, reasoning=1)),
        ]
    )
    answer = (await client.post("/v1/chat/completions", json=BODY)).json()
    message = answer["choices"][0]["message"]
    assert message["content"] is None
    assert message["reasoning_content"] == "hm"
    assert message["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}},
        {"id": "call_2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    ]
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 1
    stream, _ = await read_stream(client, BODY)
    deltas = [frame["choices"][0]["delta"] for frame in stream.frames]
    assert deltas[1] == {"reasoning_content": "hm"}
    assert deltas[2]["tool_calls"] == [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}
    ]
    assert deltas[3]["tool_calls"] == [{"index": 0, "function": {"arguments": '{"a":'}}]
    assert stream.finishes == ["tool_calls"]


async def test_without_parallel_calls_only_the_first_is_given(cluster: FakeCluster, client: Client) -> None:
    cluster.script = always(
        [
            Admitted(1, 0, 5),
            ToolCallStarted(1, 1, 0, "call_1", "look"),
            ToolCallArguments(1, 2, 0, "{}"),
            ToolCallStarted(1, 3, 1, "call_2", "look"),
            ToolCallArguments(1, 4, 1, "{}"),
            Done(1, 5, "tool_calls", Usage()),
        ]
    )
    body = {**BODY, "parallel_tool_calls": False}
    answer = (await client.post("/v1/chat/completions", json=body)).json()
    assert [call["id"] for call in answer["choices"][0]["message"]["tool_calls"]] == ["call_1"]
    _, raw = await read_stream(client, body)
    assert "call_1" in raw
    assert "call_2" not in raw


async def test_logprobs_carry_bytes(cluster: FakeCluster, client: Client) -> None:
    entry = TokenLogprob("Hi", -0.5, (72, 105), ())
    cluster.script = always(
        [
            Admitted(1, 0, 5),
            Text(1, 1, "Hi", 1, (entry,)),
            Done(1, 2, "stop", Usage(prompt=5, completion=1)),
        ]
    )
    body = {**BODY, "logprobs": True}
    expected = {
        "content": [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}],
        "refusal": None,
    }
    answer = (await client.post("/v1/chat/completions", json=body)).json()
    assert answer["choices"][0]["logprobs"] == expected
    stream, _ = await read_stream(client, body)
    assert stream.frames[1]["choices"][0]["logprobs"] == expected


async def test_prefill_progress_is_a_comment(cluster: FakeCluster, client: Client) -> None:
    cluster.script = always(
        [
            Admitted(1, 0, 5),
            Prefill(1, 1, 3, 5),
            Text(1, 2, "Hi"),
            Done(1, 3, "stop", Usage()),
        ]
    )
    stream, raw = await read_stream(client, BODY)
    progress = {"PrefillProgressChunk": {"model": "org/model", "processed_tokens": 3, "total_tokens": 5}}
    assert f": prefill_progress {json.dumps(progress, separators=(',', ':'))}\n" in raw
    assert stream.ids == ["0.0", "2.0", "3.0", "3.1"]


async def test_a_refusal_of_the_runner_is_an_http_status(cluster: FakeCluster, client: Client) -> None:
    cluster.script = always([Rejected(1, 0, Code.CONTEXT_LENGTH_EXCEEDED, "9 tokens are more than 8")])
    for stream in (False, True):
        response = await client.post("/v1/chat/completions", json={**BODY, "stream": stream})
        assert response.status_code == 400
        assert response.json()["error"] == {
            "message": "9 tokens are more than 8",
            "type": "invalid_request_error",
            "param": None,
            "code": "context_length_exceeded",
        }


async def test_overload_says_when_to_come_back(cluster: FakeCluster, client: Client) -> None:
    cluster.script = always([Rejected(1, 0, Code.OVERLOADED, "256 requests wait already")])
    for stream in (False, True):
        response = await client.post("/v1/chat/completions", json={**BODY, "stream": stream})
        assert response.status_code == 429
        assert response.json()["error"]["type"] == "rate_limit_exceeded"
        assert int(response.headers["retry-after"]) >= 1


async def test_a_failure_midway_is_a_status_or_the_last_frame(cluster: FakeCluster, client: Client) -> None:
    cluster.script = always(
        [
            Admitted(1, 0, 5),
            Text(1, 1, "Hel"),
            Failed(1, 2, Code.ENGINE_FAILED, "the engine broke"),
        ]
    )
    response = await client.post("/v1/chat/completions", json=BODY)
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "engine_failed"
    stream, raw = await read_stream(client, BODY)
    assert stream.text == "Hel"
    assert stream.errors == [
        {"message": "the engine broke", "type": "server_error", "param": None, "code": "engine_failed"}
    ]
    assert "[DONE]" not in raw
    assert stream.endings() == 1


async def test_the_request_reaches_the_node_as_it_was_meant(cluster: FakeCluster, client: Client) -> None:
    seen: list[GenerationRequest] = []

    def script(request: GenerationRequest) -> list[Any]:
        seen.append(request)
        return say("ok")

    cluster.script = script
    body = {**BODY, "temperature": 0.5, "max_tokens": 9, "max_completion_tokens": 7, "stop": "END", "seed": 3}
    assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
    request = seen[0]
    assert request.messages[0].text() == "hi"
    assert (request.max_tokens, request.stop, request.sampling.temperature) == (7, ("END",), 0.5)
    submitted = next(command for command in cluster.commands if isinstance(command, SubmitTask))
    assert submitted.size > 0


async def test_an_alias_is_echoed_and_resolved(cluster: FakeCluster, client: Client) -> None:
    answer = (await client.post("/v1/chat/completions", json={**BODY, "model": "starter"})).json()
    assert answer["model"] == "starter"
    submitted = next(command for command in cluster.commands if isinstance(command, SubmitTask))
    assert submitted.model == "org/model"


async def test_an_unknown_model_is_404_with_a_hint(client: Client) -> None:
    response = await client.post("/v1/chat/completions", json={**BODY, "model": "org/modle"})
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "org/model" in error["message"]


async def test_a_model_that_is_not_running_is_404_and_says_what_to_do(client: Client) -> None:
    response = await client.post("/v1/chat/completions", json={**BODY, "model": "org/other", "stream": True})
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["code"] == "model_not_running"
    assert "exo place org/other" in error["message"]


async def test_a_body_that_is_no_request_is_400(client: Client) -> None:
    for body in (b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b'{"model": NaN}', b"[" * 100_000):
        response = await client.post("/v1/chat/completions", content=body)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request"), body[:20]


async def test_a_body_over_the_limit_is_413(client: Client) -> None:
    response = await client.post("/v1/chat/completions", content=b" " * (33 << 20))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "payload_too_large"


async def test_a_large_prompt_passes(client: Client) -> None:
    body = {**BODY, "messages": [{"role": "user", "content": "x" * 1_200_000}]}
    assert (await client.post("/v1/chat/completions", json=body)).status_code == 200


async def test_a_master_that_does_not_answer_is_503(cluster: FakeCluster, serving: Any) -> None:
    async with serving(command_timeout=0.2) as client:
        cluster.answering = False
        response = await client.post("/v1/chat/completions", json=BODY)
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "master_unavailable"
        assert "retry-after" in response.headers


async def test_a_lost_broker_is_waited_for_and_then_503(cluster: FakeCluster, serving: Any) -> None:
    async with serving(command_timeout=0.2) as client:
        cluster.lose_hub()
        response = await client.post("/v1/chat/completions", json=BODY)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "2"
    error = response.json()["error"]
    assert error["code"] == "broker_unavailable"
    assert "node test was hub and is being replaced" in error["message"]


async def test_a_full_store_is_503_at_once_with_the_reason(cluster: FakeCluster, client: Client) -> None:
    cluster.full = "the disk under the message store has 0 MiB left"
    response = await client.post("/v1/chat/completions", json=BODY)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "broker_unavailable"
    assert cluster.full in response.json()["error"]["message"]
    assert cluster.commands == []


@pytest.mark.parametrize("stream", [True, False])
async def test_the_wait_for_the_first_chunk_is_measured(client: Client, *, stream: bool) -> None:
    await client.post("/v1/chat/completions", json={**BODY, "stream": stream})
    assert "exo_admission_seconds_count 1.0" in (await client.get("/metrics")).text
