"""What every dialect offers to the rest of the gateway."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from exo.gateway.errors import GatewayError
from exo.gateway.sse import Frame
from exo.streams.chunks import Chunk
from exo.streams.ids import TaskId
from exo.streams.requests import GenerationRequest, ResumeRecord


class Parsed(NamedTuple):
    """A request understood: the canonical form, and what only this dialect's rendering needs."""

    request: GenerationRequest
    stream: bool
    options: dict[str, Any]


class StreamRenderer(Protocol):
    """Chunks to frames. Deterministic: fed the same chunks it gives the same frames, which resuming relies on."""

    def frames(self, chunk: Chunk) -> Sequence[Frame]: ...


class DialectModule(Protocol):
    """One protocol."""

    def render_stream(self, task: TaskId, model: str, resume: ResumeRecord) -> StreamRenderer:
        """Start rendering an answer as a stream."""
        ...

    def render_whole(self, task: TaskId, model: str, resume: ResumeRecord, chunks: Sequence[Chunk]) -> bytes:
        """Render a finished answer as one body."""
        ...

    def render_error(self, error: GatewayError) -> bytes:
        """Render a refusal as the body of a response."""
        ...
