"""How the next token is drawn: settings of one request as functions over log probabilities."""

import os
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import mlx.core as mx
import msgspec
from mlx_lm.sample_utils import apply_min_p, apply_top_k, apply_top_p, greedy_sampler

from exo.streams.models import SamplingDefaults
from exo.streams.requests import Sampling

Sampler: TypeAlias = Callable[[mx.array], mx.array]
"""Maps log probabilities (rows, vocabulary) to tokens (rows,)."""

Processor: TypeAlias = Callable[[mx.array, mx.array], mx.array]
"""Maps (tokens so far, logits (1, vocabulary)) to logits."""

ENGINE_DEFAULTS = SamplingDefaults(
    temperature=0.7,
    top_p=1.0,
    top_k=0,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
)
"""What holds where neither the request nor the model's card says anything."""

_SHARED_SAMPLERS = 64
_LEAST_TEMPERATURE = 1e-5
"""Below it the likeliest token is as good as certain, and its inverse leaves the range of 32-bit numbers."""
_LEAST_TOP_P = 1e-9
"""Stands for 0, which leaves the likeliest token alone; mlx-lm takes 0 itself for "no limit"."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every value decided. `top_k` 0, `min_p` 0 and `top_p` 1 filter nothing."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float


def settle(request: Sampling, card: SamplingDefaults) -> Settings:
    """Decide each value: the request's, else the card's, else the engine's. Pure."""

    def decide(name: str) -> float:
        return next(value for part in (request, card, ENGINE_DEFAULTS) if (value := getattr(part, name)) is not None)

    return msgspec.convert({name: decide(name) for name in Settings.__struct_fields__}, Settings)


def pick_sampler(settings: Settings, seed: int | None) -> Sampler:
    """Give the sampler of one request.

    Requests without a seed share one sampler per settings, so that mlx-lm can call it once for the
    whole batch; a seed gives its own, whose draws no other request touches.
    """
    if settings.temperature < _LEAST_TEMPERATURE:
        return greedy_sampler
    drawing = msgspec.structs.replace(settings, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)
    if seed is None:
        return _share_sampler(drawing)
    return DrawingSampler(drawing, seed)


class DrawingSampler:
    """Filters, then draws with random numbers of its own."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self._settings = settings
        self._key = mx.random.key(seed & (1 << 64) - 1)

    def __call__(self, logprobs: mx.array) -> mx.array:
        """Draw one token for each row."""
        self._key, key = mx.random.split(self._key)
        filtered = self._filter(logprobs)
        return mx.random.categorical(filtered * (1 / self._settings.temperature), key=key)

    def _filter(self, logprobs: mx.array) -> mx.array:
        # In mlx-lm's order, so that the same settings mean the same as there.
        if self._settings.top_p < 1:
            logprobs = apply_top_p(logprobs, max(self._settings.top_p, _LEAST_TOP_P))
        if self._settings.min_p > 0:
            logprobs = apply_min_p(logprobs, self._settings.min_p)
        if 0 < self._settings.top_k < logprobs.shape[-1]:
            logprobs = apply_top_k(logprobs, self._settings.top_k)
        return logprobs


def build_processors(settings: Settings, logit_bias: dict[int, float], prompt_length: int) -> list[Processor]:
    """Give what changes the logits before drawing; an empty list where nothing does.

    The repetition penalty looks at prompt and answer, the other two at the answer alone, as in
    OpenAI's interface.
    """
    processors: list[Processor] = []
    if settings.repetition_penalty != 1:
        processors.append(_penalise_repetition(settings.repetition_penalty))
    if settings.presence_penalty or settings.frequency_penalty:
        processors.append(_penalise_answer(settings.presence_penalty, settings.frequency_penalty, prompt_length))
    if logit_bias:
        processors.append(_add_bias(logit_bias))
    return processors


@lru_cache(maxsize=_SHARED_SAMPLERS)
def _share_sampler(settings: Settings) -> DrawingSampler:
    return DrawingSampler(settings, int.from_bytes(os.urandom(8), "big"))


def _penalise_repetition(penalty: float) -> Processor:
    def process(tokens: mx.array, logits: mx.array) -> mx.array:
        seen = logits[:, tokens]
        logits[:, tokens] = mx.where(seen < 0, seen * penalty, seen / penalty)
        return logits

    return process


def _penalise_answer(presence: float, frequency: float, prompt_length: int) -> Processor:
    def process(tokens: mx.array, logits: mx.array) -> mx.array:
        answer = tokens[prompt_length:]
        if answer.size == 0:
            return logits
        if frequency:
            logits = logits.at[:, answer].subtract(frequency)
        if presence:
            # Read, then written: a token that occurs often is still penalised once.
            logits[:, answer] = logits[:, answer] - presence
        return logits

    return process


def _add_bias(logit_bias: dict[int, float]) -> Processor:
    tokens, values = mx.array(list(logit_bias)), mx.array(list(logit_bias.values()))

    def process(_: mx.array, logits: mx.array) -> mx.array:
        return logits.at[:, tokens].add(values.astype(logits.dtype))

    return process
