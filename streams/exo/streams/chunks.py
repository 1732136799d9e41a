"""The pieces of an answer on the token plane.

Array-like JSON without headers: `["text",1,7,"Hello",1]`. Fields may only be appended, with
defaults. `attempt` counts how often the task was started; `index` counts the chunks of one attempt
from 0 without gaps.
"""

from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "tool_calls"]


class TopLogprob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One alternative token; `bytes` are its UTF-8 bytes (a token may be half a character)."""

    token: str
    logprob: float
    bytes: tuple[int, ...]


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The drawn token and its alternatives."""

    token: str
    logprob: float
    bytes: tuple[int, ...]
    top: tuple[TopLogprob, ...] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Tokens of one answer. `completion` includes `reasoning`; `prompt` includes `cached`."""

    prompt: int = 0
    completion: int = 0
    reasoning: int = 0
    cached: int = 0


class Statistics(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How fast one answer was made. Times in seconds, memory in bytes."""

    queue_time: float = 0
    prefill_time: float = 0
    decode_time: float = 0
    prompt_tokens_per_second: float = 0
    generated_tokens_per_second: float = 0
    peak_memory: int = 0


class _Chunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    attempt: int
    index: int


class Admitted(_Chunk, frozen=True, array_like=True, gc=False, tag="admitted"):
    """Always the first chunk of an answer: the prompt is tokenised and accepted."""

    prompt_tokens: int
    queue_position: int = 0


class Rejected(_Chunk, frozen=True, array_like=True, gc=False, tag="rejected"):
    """The first and only chunk: the runner refuses the request."""

    code: str
    message: str


class Prefill(_Chunk, frozen=True, array_like=True, gc=False, tag="prefill"):
    """How much of the prompt has been processed, in tokens."""

    processed: int
    total: int


class Text(_Chunk, frozen=True, array_like=True, gc=False, tag="text"):
    """A piece of the answer; never half a character."""

    text: str
    tokens: int = 1
    logprobs: tuple[TokenLogprob, ...] = ()


class Reasoning(_Chunk, frozen=True, array_like=True, gc=False, tag="reasoning"):
    """A piece of the model's thinking."""

    text: str
    tokens: int = 1
    logprobs: tuple[TokenLogprob, ...] = ()


class ToolCallStarted(_Chunk, frozen=True, array_like=True, gc=False, tag="tool"):
    """The model calls a function; `position` counts the calls of this answer from 0."""

    position: int
    call_id: str
    name: str


class ToolCallArguments(_Chunk, frozen=True, array_like=True, gc=False, tag="arguments"):
    """A piece of the JSON text of a call's arguments."""

    position: int
    text: str
    tokens: int = 1


class Done(_Chunk, frozen=True, array_like=True, gc=False, tag="done"):
    """The last chunk of a finished answer; `stop_sequence` is the one that matched, if one did."""

    reason: FinishReason
    usage: Usage
    statistics: Statistics = Statistics()
    stop_sequence: str | None = None


class Failed(_Chunk, frozen=True, array_like=True, gc=False, tag="failed"):
    """The last chunk of an answer that broke off after it had been admitted."""

    code: str
    message: str


Chunk = Admitted | Rejected | Prefill | Text | Reasoning | ToolCallStarted | ToolCallArguments | Done | Failed
TERMINAL = (Rejected, Done, Failed)
"""An answer has exactly one of these, as its last chunk."""
