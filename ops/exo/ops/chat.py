"""One chat request as a client sees it: the frames of `POST /v1/chat/completions`, typed and in order.

Used by `exo run` and `exo chat`. Prints nothing.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal

import msgspec

from exo.ops.client import NodeClient
from exo.ops.errors import CommandError

Kind = Literal["text", "reasoning", "tool"]
END = "[DONE]"


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a request."""

    model: str
    messages: Sequence[Message]
    stream: bool = False
    max_tokens: int | None = None
    temperature: float | None = None


class Piece(msgspec.Struct, frozen=True):
    """Some words of the answer."""

    kind: Kind
    text: str


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct, frozen=True):
    function: _Function = _Function()


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta = _Delta()
    finish_reason: str | None = None


class _Error(msgspec.Struct, frozen=True):
    message: str
    code: str | int | None = None


class _Frame(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    error: _Error | None = None


_frame = msgspec.json.Decoder(_Frame)


async def stream_answer(client: NodeClient, question: Question) -> AsyncGenerator[Piece]:
    """Give the answer piece by piece; closing the generator early cancels the request.

    Raises `CommandError` with the server's code on a refusal, on an error frame, and on a stream that
    stops before its end.
    """
    body: dict[str, Any] = {**msgspec.to_builtins(question), "stream": True}
    async with client.stream("POST", "/v1/chat/completions", body=body) as events:
        async for event in events:
            if event.data == END:
                return
            for piece in _read_frame(event.data):
                yield piece
    raise CommandError("the answer broke off", remedy="`exo status` shows whether the model still runs")


def _read_frame(data: str) -> list[Piece]:
    try:
        frame = _frame.decode(data)
    except msgspec.DecodeError as error:
        raise CommandError(f"a frame of the answer cannot be read: {error}") from error
    if frame.error is not None:
        raise CommandError(frame.error.message.rstrip("."), code=str(frame.error.code or ""))
    return [piece for choice in frame.choices for piece in _read_delta(choice.delta)]


def _read_delta(delta: _Delta) -> list[Piece]:
    pieces = [Piece("reasoning", delta.reasoning_content or ""), Piece("text", delta.content or "")]
    for call in delta.tool_calls or ():
        start = f"\n{call.function.name} " if call.function.name else ""
        pieces.append(Piece("tool", start + (call.function.arguments or "")))
    return [piece for piece in pieces if piece.text]
