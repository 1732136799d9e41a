"""From chunks to Chat Completions, streamed or whole. Pure: the same chunks give the same bytes.

Frames are put together from parts that are encoded once per answer; only the text of a token is
encoded per token.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from exo.gateway.dialects.openai_chat.logprobs import render_logprobs
from exo.gateway.dialects.openai_chat.usage import render_statistics, render_usage
from exo.gateway.errors import GatewayError, render_openai
from exo.gateway.sse import DONE, Frame
from exo.streams.chunks import (
    Admitted,
    Chunk,
    Done,
    Failed,
    Prefill,
    Reasoning,
    Rejected,
    Text,
    ToolCallArguments,
    ToolCallStarted,
)
from exo.streams.ids import TaskId
from exo.streams.requests import ResumeRecord

_encode: Final = msgspec.json.Encoder().encode
_NOTHING: Final[tuple[Frame, ...]] = ()


def public_id(task: TaskId) -> str:
    """Give the id that clients see."""
    return f"chatcmpl-{task}"


def render_error(error: GatewayError) -> bytes:
    """Render a refusal."""
    return render_openai(error)


class ChatStream:
    """Renders one answer as a stream."""

    def __init__(self, task: TaskId, model: str, resume: ResumeRecord) -> None:
        self._model = model
        self._include_usage = bool(resume.options.get("include_usage"))
        self._one_call = bool(resume.options.get("one_tool_call"))
        self._begun = False
        head = _encode(
            {
                "id": public_id(task),
                "object": "chat.completion.chunk",
                "created": resume.created,
                "model": model,
                "system_fingerprint": None,
            }
        )[:-1]
        self._tail = b',"usage":null}' if self._include_usage else b"}"
        self._delta = head + b',"choices":[{"index":0,"delta":{'
        self._no_choices = head + b',"choices":[],"usage":'
        self._plain_end = b'},"logprobs":null,"finish_reason":null}]' + self._tail

    def frames(self, chunk: Chunk) -> Sequence[Frame]:
        """Give the frames of the next chunk."""
        match chunk:
            case Text(text=text, logprobs=()):
                return self._delta_of(b'"content":', text)
            case Text(text=text, logprobs=logprobs):
                end = b'},"logprobs":%b,"finish_reason":null}]%b' % (_encode(render_logprobs(logprobs)), self._tail)
                return (Frame(b'%b"content":%b%b' % (self._delta, _encode(text), end)),)
            case Reasoning(text=text):
                return self._delta_of(b'"reasoning_content":', text)
            case ToolCallArguments() | ToolCallStarted():
                return self._call(chunk)
            case _:
                return self._mark(chunk)

    def _mark(self, chunk: Admitted | Prefill | Done | Failed | Rejected) -> Sequence[Frame]:
        """Give the frames of a chunk that holds no output: beginning, progress, end."""
        match chunk:
            case Admitted():
                return self._begin()
            case Prefill(processed=processed, total=total):
                return (_progress(self._model, processed, total),)
            case Done():
                return self._finish(chunk)
            case Failed(code=code, message=message) | Rejected(code=code, message=message):
                return (Frame(render_error(GatewayError(code, message))),)

    def _delta_of(self, key: bytes, text: str) -> Sequence[Frame]:
        return (Frame(b"%b%b%b%b" % (self._delta, key, _encode(text), self._plain_end)),) if text else _NOTHING

    def _begin(self) -> Sequence[Frame]:
        if self._begun:
            return _NOTHING
        self._begun = True
        return (Frame(self._delta + b'"role":"assistant","content":"","refusal":null' + self._plain_end),)

    def _call(self, chunk: ToolCallStarted | ToolCallArguments) -> Sequence[Frame]:
        if self._one_call and chunk.position > 0:
            return _NOTHING
        if isinstance(chunk, ToolCallStarted):
            function = {"name": chunk.name, "arguments": ""}
            call = {"index": chunk.position, "id": chunk.call_id, "type": "function", "function": function}
        else:
            call = {"index": chunk.position, "function": {"arguments": chunk.text}}
        return (Frame(b'%b"tool_calls":[%b]%b' % (self._delta, _encode(call), self._plain_end)),)

    def _finish(self, done: Done) -> Sequence[Frame]:
        end = b'},"logprobs":null,"finish_reason":%b}]%b' % (_encode(done.reason), self._tail)
        frames = [Frame(self._delta + end)]
        if self._include_usage:
            frames.append(Frame(self._no_choices + _encode(render_usage(done.usage)) + b"}"))
        frames.append(Frame(b"generation_stats " + _encode(render_statistics(done)), comment=True))
        frames.append(Frame(DONE))
        return frames


def _progress(model: str, processed: int, total: int) -> Frame:
    progress = {"model": model, "processed_tokens": processed, "total_tokens": total}
    return Frame(b"prefill_progress " + _encode({"PrefillProgressChunk": progress}), comment=True)


def render_stream(task: TaskId, model: str, resume: ResumeRecord) -> ChatStream:
    """Start rendering an answer as a stream."""
    return ChatStream(task, model, resume)


def render_whole(task: TaskId, model: str, resume: ResumeRecord, chunks: Sequence[Chunk]) -> bytes:
    """Render a finished answer as one body. The last chunk is its `Done`."""
    done = chunks[-1]
    assert isinstance(done, Done)
    texts = [chunk for chunk in chunks if isinstance(chunk, Text)]
    logprobs = [entry for chunk in texts for entry in chunk.logprobs]
    choice = {
        "index": 0,
        "message": _message(chunks, one_call=bool(resume.options.get("one_tool_call"))),
        "logprobs": render_logprobs(logprobs) if logprobs else None,
        "finish_reason": done.reason,
    }
    return _encode(
        {
            "id": public_id(task),
            "object": "chat.completion",
            "created": resume.created,
            "model": model,
            "choices": [choice],
            "usage": render_usage(done.usage),
            "system_fingerprint": None,
            "service_tier": None,
        }
    )


def _message(chunks: Sequence[Chunk], *, one_call: bool) -> dict[str, Any]:
    content = "".join(chunk.text for chunk in chunks if isinstance(chunk, Text))
    reasoning = "".join(chunk.text for chunk in chunks if isinstance(chunk, Reasoning))
    calls = _calls(chunks)[: 1 if one_call else None]
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def _calls(chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    arguments: dict[int, str] = {}
    for chunk in chunks:
        if isinstance(chunk, ToolCallArguments):
            arguments[chunk.position] = arguments.get(chunk.position, "") + chunk.text
    return [
        {
            "id": chunk.call_id,
            "type": "function",
            "function": {"name": chunk.name, "arguments": arguments.get(chunk.position, "")},
        }
        for chunk in chunks
        if isinstance(chunk, ToolCallStarted)
    ]
