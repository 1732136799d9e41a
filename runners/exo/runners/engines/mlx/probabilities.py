"""Log probabilities of a drawn token, read at once: the array lives only until the next step.

Read through numpy, which shares MLX's memory: an operation of MLX's own would queue behind the next
step, which is computing already.
"""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from exo.runners.text.detokenize import Detokenization
from exo.streams.chunks import TokenLogprob, TopLogprob


def view(logprobs: mx.array) -> NDArray[np.float32]:
    """Give the evaluated log probabilities (vocabulary,) as numpy sees them."""
    if logprobs.dtype != mx.float32:
        logprobs = logprobs.astype(mx.float32)
    return np.asarray(logprobs)


def describe(token: int, logprobs: NDArray[np.float32], top: int, words: Detokenization) -> TokenLogprob:
    """Give the token's log probability and those of the `top` likeliest tokens, best first."""
    best: tuple[TopLogprob, ...] = ()
    if top:
        count = min(top, len(logprobs))
        candidates = np.argpartition(logprobs, -count)[-count:]
        ordered = candidates[np.argsort(-logprobs[candidates], kind="stable")]
        best = tuple(TopLogprob(*_spell(int(number), logprobs, words)) for number in ordered)
    return TokenLogprob(*_spell(token, logprobs, words), top=best)


def _spell(token: int, logprobs: NDArray[np.float32], words: Detokenization) -> tuple[str, float, tuple[int, ...]]:
    spelled = words.read_bytes(token)
    # JSON has no infinity; a token that was filtered out is as good as this unlikely.
    return spelled.decode("utf-8", "replace"), max(float(logprobs[token]), -9999.0), tuple(spelled)
