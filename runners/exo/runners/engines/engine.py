"""The `Engine` port: loads one shard and generates tokens, one step at a time.

`runner.py` drives it from one thread; only `render` is called from other threads. The engine knows
nothing of pipes, chunks, reasoning or tool calls: it yields tokens and pieces of text.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from exo.streams.chunks import TokenLogprob
from exo.streams.ids import TaskId
from exo.streams.requests import GenerationRequest

LoadProgress = Callable[[int, int], None]
"""Called with (layers loaded, layers in all)."""


class RequestRefusedError(Exception):
    """Raised by `render` and `admit` for a request that this model cannot answer; concerns no other request."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Prompt(msgspec.Struct, frozen=True):
    """A rendered and tokenised request.

    `tokens` has shape (prompt length,). `reasoning_open` when the template itself opened the
    thinking block, so that the answer begins inside it.
    """

    tokens: tuple[int, ...]
    text: str
    reasoning_open: bool = False


class Markers(msgspec.Struct, frozen=True):
    """How a model marks thinking and tool calls in its text; empty strings where it does neither."""

    think_start: str = ""
    think_end: str = ""
    tool_start: str = ""
    tool_end: str = ""
    tool_parser: str = ""
    """Name of the format between `tool_start` and `tool_end`, see exo.runners.text.parse."""


class PrefillStep(msgspec.Struct, frozen=True):
    """Prompt tokens processed so far."""

    task: TaskId
    processed: int
    total: int


class TokenStep(msgspec.Struct, frozen=True):
    """One drawn token. `text` is what it adds to the answer: whole characters only, may be empty."""

    task: TaskId
    text: str
    token: int
    logprob: TokenLogprob | None = None


class EndStep(msgspec.Struct, frozen=True):
    """The sequence is over and its slot free. `text` is what the detokeniser still held back."""

    task: TaskId
    reason: Literal["stop", "length"]
    text: str = ""


class FaultStep(msgspec.Struct, frozen=True):
    """One sequence broke; its neighbours go on."""

    task: TaskId
    message: str


Step = PrefillStep | TokenStep | EndStep | FaultStep


class Engine(Protocol):
    """One loaded shard."""

    @property
    def markers(self) -> Markers: ...

    @property
    def context_length(self) -> int:
        """Tokens of prompt plus answer."""
        ...

    @property
    def active(self) -> int:
        """Sequences that hold a slot."""
        ...

    @property
    def peak_memory(self) -> int:
        """Bytes, since the load."""
        ...

    def load(self, on_progress: LoadProgress) -> None:
        """Read the weights; raises with a message that says what is missing."""
        ...

    def render(self, request: GenerationRequest) -> Prompt:
        """Apply the chat template and tokenise; thread-safe. Raises `RequestRefusedError`."""
        ...

    def admit(self, task: TaskId, prompt: Prompt, request: GenerationRequest) -> None:
        """Give the request a slot; the caller keeps `active` within `max_batch`."""
        ...

    def step(self) -> list[Step]:
        """Run one step: at most one token for each sequence, or one piece of prefill."""
        ...

    def drop(self, task: TaskId) -> None:
        """Free a slot before the sequence has ended; unknown tasks are ignored."""
        ...

    def close(self) -> None:
        """Free the memory."""
        ...
