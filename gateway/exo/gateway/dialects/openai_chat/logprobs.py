"""Log probabilities in OpenAI's shape. Pure."""

from collections.abc import Iterable
from typing import Any

from exo.streams.chunks import TokenLogprob, TopLogprob


def render_logprobs(entries: Iterable[TokenLogprob]) -> dict[str, Any]:
    """One entry per token; `refusal` is always there and null."""
    content = [
        {**_render(entry), "top_logprobs": [_render(alternative) for alternative in entry.top]} for entry in entries
    ]
    return {"content": content, "refusal": None}


def _render(entry: TokenLogprob | TopLogprob) -> dict[str, Any]:
    return {"token": entry.token, "logprob": entry.logprob, "bytes": entry.bytes}
