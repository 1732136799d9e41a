"""The first request of a runner's life, made by itself: kernels are compiled before a user waits for them."""

from exo.runners.engines.engine import EndStep, Engine, FaultStep, Prompt, RequestRefusedError
from exo.runners.runner import limit
from exo.streams.ids import ModelId, TaskId
from exo.streams.requests import GenerationRequest, Message, TextPart

TOKENS = 2
"""The first comes from prefill, the second from decode: then both paths have run."""
_TASK = TaskId("warm-up")
_TEXT = "Hello"


class WarmUpError(Exception):
    """Raised when the engine broke on its first request."""


def warm_up(engine: Engine, model: ModelId) -> None:
    """Run a short request to its end on the engine's own thread."""
    request = GenerationRequest(
        model=model,
        messages=(Message(role="user", content=(TextPart(_TEXT),)),),
        max_tokens=TOKENS,
    )
    request, prompt = _render(engine, request)
    engine.admit(_TASK, prompt, limit(request, prompt, engine.context_length))
    while engine.active:
        for step in engine.step():
            if isinstance(step, FaultStep):
                raise WarmUpError(step.message)
            if isinstance(step, EndStep):
                return


def _render(engine: Engine, request: GenerationRequest) -> tuple[GenerationRequest, Prompt]:
    try:
        return request, engine.render(request)
    except RequestRefusedError:
        # A base model without a chat template still continues plain text.
        plain = GenerationRequest(model=request.model, prompt=_TEXT, max_tokens=TOKENS)
        return plain, engine.render(plain)
