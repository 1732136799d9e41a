"""Checks of the numbers in a Chat Completions body: what would change the answer is refused, never clamped. Pure."""

import math
from typing import Final

from exo.gateway.bodies import invalid
from exo.gateway.dialects.openai_chat.types import ChatRequest
from exo.streams.requests import Sampling

MOST_STOPS: Final = 16
MOST_LOGPROBS: Final = 20
_SEED_MASK: Final = 2**64 - 1
_MOST: Final = 2**31
"""Limits above it say "no limit": clients send 10**12 or 2**63. The vocabulary and the context end earlier."""


def to_sampling(chat: ChatRequest) -> Sampling:
    """Take the sampling values over; every one is optional."""
    return Sampling(
        temperature=_in_range("temperature", chat.temperature, 0, 2),
        top_p=_in_range("top_p", chat.top_p, 0, 1),
        top_k=_to_top_k(chat.top_k),
        min_p=_in_range("min_p", chat.min_p, 0, 1),
        repetition_penalty=_to_repetition_penalty(chat.repetition_penalty),
        presence_penalty=_in_range("presence_penalty", chat.presence_penalty, -2, 2),
        frequency_penalty=_in_range("frequency_penalty", chat.frequency_penalty, -2, 2),
        logit_bias=_to_logit_bias(chat.logit_bias),
        # Engines take 64 unsigned bits; the same seed always becomes the same number.
        seed=None if chat.seed is None else chat.seed & _SEED_MASK,
    )


def _in_range(name: str, value: float | None, low: float, high: float) -> float | None:
    if value is not None and not (math.isfinite(value) and low <= value <= high):
        raise invalid(f"{name} must be between {low} and {high}.", name)
    return value


def _to_top_k(value: int | None) -> int | None:
    if value is None or value == -1:
        return None
    if value < 0:
        raise invalid("top_k must be at least 0; 0 and -1 mean no limit.", "top_k")
    return min(value, _MOST)


def _to_repetition_penalty(value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and 0 < value <= 10):
        raise invalid("repetition_penalty must be above 0 and at most 10.", "repetition_penalty")
    return value


def _to_logit_bias(bias: dict[str, float] | None) -> dict[int, float]:
    converted: dict[int, float] = {}
    for token, value in (bias or {}).items():
        if not (token.isascii() and token.isdigit() and len(token) <= 9):
            raise invalid(f"logit_bias names a token that is not a number: {token[:40]!r}.", "logit_bias")
        if not (math.isfinite(value) and -100 <= value <= 100):
            raise invalid("logit_bias values must be between -100 and 100.", f"logit_bias.{token}")
        converted[int(token)] = value
    return converted


def to_max_tokens(chat: ChatRequest) -> int | None:
    """Give the limit: the newer name wins, None means up to the context."""
    newer = chat.max_completion_tokens is not None
    name, value = ("max_completion_tokens", chat.max_completion_tokens) if newer else ("max_tokens", chat.max_tokens)
    if value is None:
        return None
    if value < 1:
        raise invalid(f"{name} must be at least 1.", name)
    return min(value, _MOST)


def to_stop(stop: str | list[str] | None) -> tuple[str, ...]:
    """Give the stop texts; empty ones never match and are left out."""
    texts = [stop] if isinstance(stop, str) else stop or []
    if len(texts) > MOST_STOPS:
        raise invalid(f"At most {MOST_STOPS} stop texts are supported.", "stop")
    return tuple(text for text in texts if text)


def to_top_logprobs(chat: ChatRequest) -> int:
    """Give the number of alternatives: 0 to 20, and only with `logprobs`."""
    count = chat.top_logprobs
    if count is None:
        return 0
    if not chat.logprobs:
        raise invalid("`top_logprobs` needs `logprobs`: true.", "top_logprobs")
    if not 0 <= count <= MOST_LOGPROBS:
        raise invalid(f"top_logprobs must be between 0 and {MOST_LOGPROBS}.", "top_logprobs")
    return count
