"""The scripted engine behind the model `exo/scripted`: deterministic, without weights or MLX.

It says what the directives in the prompt order (see `scripted.directives`), through the same
tokens, detokeniser and parsers as a real model, as fast and as faultily as its `Script` says.
"""

import codecs
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from exo.runners.engines.engine import (
    EndStep,
    FaultStep,
    LoadProgress,
    Markers,
    PrefillStep,
    Prompt,
    RequestRefusedError,
    Step,
    TokenStep,
)
from exo.runners.engines.scripted.directives import continues_answer, get_answer_start, read_answer
from exo.runners.engines.scripted.script import NEVER, read_script
from exo.runners.engines.scripted.template import load_template, spell_answer
from exo.runners.engines.scripted.tokenizer import END_OF_TURN, encode, iterate_tokens, read_bytes
from exo.runners.text.template import TemplateRefused
from exo.streams.chunks import TokenLogprob, TopLogprob
from exo.streams.codes import Code
from exo.streams.ids import TaskId
from exo.streams.pipe import Start
from exo.streams.requests import GenerationRequest

PREFILL_STEP = 512
"""Tokens of one piece of prefill when its rate is scripted."""
_MARKERS = Markers("<think>", "</think>", "<tool_call>", "</tool_call>", "json_tools")
_Decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(slots=True)
class _Sequence:
    task: TaskId
    tokens: Iterator[int]
    unread: int
    prompt_length: int
    room: int
    logprobs: int
    drawn: int = 0
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: _Decoder("ignore"))


class ScriptedEngine:
    """An `Engine` that plays a script."""

    def __init__(self, start: Start) -> None:
        self._script = read_script(start.options.script)
        self._prefill_step = start.options.prefill_step or PREFILL_STEP
        self._layers = start.shard.n_layers
        self._context_length = start.instance.context_length
        self._template = load_template()
        self._sequences: dict[TaskId, _Sequence] = {}
        self._next_step = 0.0

    @property
    def markers(self) -> Markers:
        return _MARKERS

    @property
    def context_length(self) -> int:
        return self._context_length

    @property
    def active(self) -> int:
        return len(self._sequences)

    @property
    def peak_memory(self) -> int:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    def load(self, on_progress: LoadProgress) -> None:
        """Take `load_seconds`, layer by layer."""
        if self._script.fail_load:
            raise RuntimeError("the script says that loading fails (fail_load)")
        if self._script.hang_load:
            _hang()
        for layer in range(self._layers + 1):
            on_progress(layer, self._layers)
            if layer < self._layers:
                time.sleep(self._script.load_seconds / self._layers)

    def render(self, request: GenerationRequest) -> Prompt:
        if request.prompt is None and not request.messages:
            raise RequestRefusedError(Code.INVALID_REQUEST, "a request needs messages or a prompt")
        try:
            text = self._template.render(request).text
        except TemplateRefused as refusal:
            raise RequestRefusedError(Code.INVALID_REQUEST, str(refusal)) from refusal
        return Prompt(encode(text), text)

    def admit(self, task: TaskId, prompt: Prompt, request: GenerationRequest) -> None:
        answer = spell_answer(read_answer(request))
        if continues_answer(request):
            answer = answer.removeprefix(get_answer_start(request.messages))
        room = self._context_length - len(prompt.tokens)
        self._sequences[task] = _Sequence(
            task,
            tokens=iterate_tokens(answer),
            unread=len(prompt.tokens) if self._script.prefill_tokens_per_second else 0,
            prompt_length=len(prompt.tokens),
            room=room if request.max_tokens is None else min(room, request.max_tokens),
            logprobs=request.top_logprobs + 1 if request.logprobs else 0,
        )

    def drop(self, task: TaskId) -> None:
        self._sequences.pop(task, None)

    def close(self) -> None:
        self._sequences.clear()

    def step(self) -> list[Step]:
        if not self._sequences:
            return []
        for sequence in self._sequences.values():
            if sequence.unread:
                return [self._prefill(sequence)]
        self._keep_pace()
        if self._script.has_faults:
            self._play_faults()
        steps: list[Step] = []
        for sequence in list(self._sequences.values()):
            self._draw(sequence, steps)
        return steps

    def _prefill(self, sequence: _Sequence) -> PrefillStep:
        count = min(sequence.unread, self._prefill_step)
        time.sleep(count / self._script.prefill_tokens_per_second)
        sequence.unread -= count
        return PrefillStep(sequence.task, sequence.prompt_length - sequence.unread, sequence.prompt_length)

    def _keep_pace(self) -> None:
        if not self._script.tokens_per_second:
            return
        now = time.monotonic()
        if self._next_step > now:
            time.sleep(self._next_step - now)
        self._next_step = max(self._next_step, now) + 1 / self._script.tokens_per_second

    def _draw(self, sequence: _Sequence, steps: list[Step]) -> None:
        if self._is_faulty(sequence):
            del self._sequences[sequence.task]
            steps.append(FaultStep(sequence.task, "the script says that this answer breaks (raise_after_tokens)"))
            return
        token = next(sequence.tokens, END_OF_TURN)
        if token == END_OF_TURN:
            del self._sequences[sequence.task]
            steps.append(EndStep(sequence.task, "stop"))
            return
        sequence.drawn += 1
        spelled = read_bytes(token)
        logprob = _invent_logprob(spelled, sequence.logprobs) if sequence.logprobs else None
        steps.append(TokenStep(sequence.task, sequence.decoder.decode(spelled), token, logprob))
        if sequence.drawn >= sequence.room:
            del self._sequences[sequence.task]
            steps.append(EndStep(sequence.task, "length"))

    def _is_faulty(self, sequence: _Sequence) -> bool:
        return self._script.raise_after_tokens != NEVER and sequence.drawn >= self._script.raise_after_tokens

    def _play_faults(self) -> None:
        drawn = max(sequence.drawn for sequence in self._sequences.values())
        script = self._script
        if script.crash_after_tokens != NEVER and drawn >= script.crash_after_tokens:
            os.kill(os.getpid(), signal.SIGKILL)
        if script.hang_after_tokens != NEVER and drawn >= script.hang_after_tokens:
            _hang()
        if script.break_after_tokens != NEVER and drawn >= script.break_after_tokens:
            raise RuntimeError("the script says that the engine breaks (break_after_tokens)")


def _hang() -> None:
    threading.Event().wait()


def _invent_logprob(spelled: bytes, count: int) -> TokenLogprob:
    """Give the drawn token the best of `count - 1` made-up alternatives."""
    text = spelled.decode("utf-8", "replace")
    top = [TopLogprob(text, -0.125, tuple(spelled))]
    top += [TopLogprob(chr(96 + rank), -2.0 - rank, (96 + rank,)) for rank in range(1, count - 1)]
    return TokenLogprob(text, -0.125, tuple(spelled), tuple(top[: count - 1]))
