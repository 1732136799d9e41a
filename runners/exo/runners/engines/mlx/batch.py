"""The sequences at work: mlx-lm's batch generator, its responses as the engine's steps."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.generate import BatchGenerator, GenerationBatch, PromptProcessingBatch
from numpy.typing import NDArray

from exo.runners.engines.engine import EndStep, FaultStep, PrefillStep, Prompt, Step, TokenStep
from exo.runners.engines.mlx.backend import Backend
from exo.runners.engines.mlx.language import Language
from exo.runners.engines.mlx.probabilities import describe, view
from exo.runners.engines.mlx.sampling import build_processors, pick_sampler, settle
from exo.runners.text.detokenize import Detokenizer
from exo.streams.ids import TaskId
from exo.streams.models import SamplingDefaults
from exo.streams.pipe import EngineOptions
from exo.streams.requests import GenerationRequest

_PREFILL_STEP: dict[Backend, int] = {"MlxMetal": 2048, "MlxCuda": 2048, "MlxCpu": 128}
"""Prompt tokens per step. Prefill delays every running answer: 2048 tokens are ten seconds on a CPU."""

_PREFILL_BATCH: dict[Backend, int] = {"MlxMetal": 8, "MlxCuda": 8, "MlxCpu": 8}
"""Prompts per step, as mlx-lm's own server takes them: fewer would leave rows of a matrix unused."""


@dataclass(frozen=True)
class Sequence:
    """One request in a slot. `top_logprobs` is None when nobody asked for log probabilities."""

    task: TaskId
    uid: int
    detokenizer: Detokenizer
    top_logprobs: int | None


class Batch:
    """Runs several requests at once; used by one thread only."""

    def __init__(
        self,
        model: nn.Module,
        language: Language,
        backend: Backend,
        *,
        options: EngineOptions,
        defaults: SamplingDefaults,
    ) -> None:
        self._words = language.detokenization
        self._defaults = defaults
        self._generator = BatchGenerator(
            model,
            stop_tokens=[(token,) for token in language.end_tokens],
            completion_batch_size=options.max_batch,
            prefill_batch_size=min(_PREFILL_BATCH[backend], options.max_batch),
            prefill_step_size=options.prefill_step or _PREFILL_STEP[backend],
        )
        self._by_uid: dict[int, Sequence] = {}
        self._by_task: dict[TaskId, Sequence] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def admit(self, task: TaskId, prompt: Prompt, request: GenerationRequest) -> None:
        """Add a sequence; `request.max_tokens` must be set and positive."""
        assert request.max_tokens is not None
        settings = settle(request.sampling, self._defaults)
        processors = build_processors(settings, request.sampling.logit_bias, len(prompt.tokens))
        (uid,) = self._generator.insert(
            [list(prompt.tokens)],
            max_tokens=[request.max_tokens],
            samplers=[pick_sampler(settings, request.sampling.seed)],
            logits_processors=[processors],
        )
        sequence = Sequence(
            task,
            uid,
            self._words.start(continues=request.prompt is not None or request.continue_final_message),
            request.top_logprobs if request.logprobs else None,
        )
        self._by_uid[uid] = self._by_task[task] = sequence

    def step(self) -> list[Step]:
        """Run the generator once and give what came of it."""
        prompts, tokens = self._generator.next()
        steps: list[Step] = []
        for response in tokens:
            steps += self._read_token(response)
        steps += [self._read_prompt(response) for response in prompts]
        return steps

    def drop(self, task: TaskId) -> None:
        """Take a sequence out before its end."""
        sequence = self._by_task.get(task)
        if sequence is not None:
            self._generator.remove([sequence.uid])
            self._forget(sequence)

    def close(self) -> None:
        """Give all memory back to the system."""
        self._generator.remove(list(self._by_uid))
        self._generator.close()
        self._by_uid.clear()
        self._by_task.clear()
        del self._generator
        mx.clear_cache()

    def _read_prompt(self, response: PromptProcessingBatch.Response) -> PrefillStep:
        processed, total = response.progress
        return PrefillStep(self._by_uid[response.uid].task, processed, total)

    def _read_token(self, response: GenerationBatch.Response) -> list[Step]:
        sequence = self._by_uid[response.uid]
        logprobs = self._look_at(sequence, response)
        # Looked at first: token 0 ends an answer in many models.
        if logprobs is not None and np.isnan(logprobs[response.token]):
            self.drop(sequence.task)
            return [FaultStep(sequence.task, "the model computed NaN: its weights are damaged or overflow")]
        steps: list[Step] = []
        # The token that ends an answer is no part of it.
        if response.finish_reason != "stop":
            steps.append(self._describe_token(sequence, response.token, logprobs))
        if response.finish_reason is not None:
            reason = "stop" if response.finish_reason == "stop" else "length"
            steps.append(EndStep(sequence.task, reason, sequence.detokenizer.flush()))
            self._forget(sequence)
        return steps

    def _look_at(self, sequence: Sequence, response: GenerationBatch.Response) -> NDArray[np.float32] | None:
        """Give the log probabilities where somebody asked, or where they may be NaN.

        Looking costs a millisecond a sequence. The likeliest of all NaN, and what is drawn from them,
        is token 0, so that other tokens need no look.
        """
        suspicious = response.token == 0 and response.logprobs.dtype == mx.float32
        return view(response.logprobs) if suspicious or sequence.top_logprobs is not None else None

    def _describe_token(self, sequence: Sequence, token: int, logprobs: NDArray[np.float32] | None) -> TokenStep:
        logprob = None
        if logprobs is not None and sequence.top_logprobs is not None:
            logprob = describe(token, logprobs, sequence.top_logprobs, self._words)
        return TokenStep(sequence.task, sequence.detokenizer.add(token), token, logprob)

    def _forget(self, sequence: Sequence) -> None:
        del self._by_uid[sequence.uid]
        del self._by_task[sequence.task]
