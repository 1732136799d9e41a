"""The engine loop: schedule, run, postprocess. Runs on the main thread, owns the engine and all answers."""

import time

import structlog
from msgspec.structs import replace

from exo.runners.admission import Admission, Breach, Ticket
from exo.runners.answer import Answer
from exo.runners.engines.engine import (
    EndStep,
    Engine,
    FaultStep,
    PrefillStep,
    Prompt,
    RequestRefusedError,
    Step,
    TokenStep,
)
from exo.runners.outbox import Outbox
from exo.streams.chunks import Chunk, Failed
from exo.streams.codes import Code
from exo.streams.ids import TaskId
from exo.streams.requests import GenerationRequest

log = structlog.get_logger(__name__)


class Runner:
    """Serves the requests that `Admission` lets through."""

    def __init__(self, engine: Engine, admission: Admission, outbox: Outbox) -> None:
        self._engine = engine
        self._admission = admission
        self._outbox = outbox
        self._answers: dict[TaskId, Answer] = {}
        self._chunks: list[tuple[TaskId, Chunk]] = []
        self.steps = 0
        self.generated_tokens = 0
        self.prompt_tokens = 0

    def step(self) -> None:
        """Do one round; blocks only inside the engine, and while the node does not read."""
        self._schedule()
        steps = self._engine.step() if self._engine.active else []
        self._postprocess(steps)
        self._flush()

    def abandon(self, breach: Breach) -> None:
        """The engine is broken: end every request inside without touching it again."""
        self._admission.close(breach)
        self._admission.break_all(breach)
        for ticket in self._admission.plan(now=time.monotonic()).drops:
            self._break_off(ticket)
        self._flush()

    def close(self) -> None:
        """Free what the engine holds."""
        self._engine.close()

    def _schedule(self) -> None:
        plan = self._admission.plan(now=time.monotonic())
        for ticket in plan.drops:
            self._drop(ticket)
        for ticket in plan.admits:
            self._admit(ticket)

    def _drop(self, ticket: Ticket) -> None:
        self._engine.drop(ticket.task)
        self._break_off(ticket)

    def _break_off(self, ticket: Ticket) -> None:
        breach = ticket.breach
        assert breach is not None
        if answer := self._answers.get(ticket.task):
            self._fail(answer, breach.code, breach.message)
        else:
            self._chunks.append((ticket.task, Failed(ticket.generate.attempt, 1, breach.code, breach.message)))

    def _flush(self) -> None:
        self._outbox.emit(self._chunks)
        self._chunks.clear()

    def _admit(self, ticket: Ticket) -> None:
        prompt = ticket.prompt
        assert prompt is not None
        answer = Answer(ticket, prompt, self._engine.markers)
        self._answers[ticket.task] = answer
        try:
            self._engine.admit(ticket.task, prompt, limit(ticket.generate.request, prompt, self._engine.context_length))
        except RequestRefusedError as refusal:
            self._fail(answer, refusal.code, refusal.message)
            return
        self.prompt_tokens += len(prompt.tokens)

    def _postprocess(self, steps: list[Step]) -> None:
        self.steps += 1
        touched: dict[TaskId, Answer] = {}
        for step in steps:
            # A stop string may have ended the answer earlier in this same step.
            if answer := self._answers.get(step.task):
                touched[step.task] = answer
                self._take(answer, step)
        for task, answer in touched.items():
            self._chunks += [(task, chunk) for chunk in answer.drain()]

    def _take(self, answer: Answer, step: Step) -> None:
        match step:
            case TokenStep():
                self.generated_tokens += 1
                answer.take_token(step)
            case EndStep():
                answer.take_end(step)
            case PrefillStep():
                answer.take_prefill(step)
            case FaultStep(message=message):
                log.error("the engine failed on a request", task=step.task, error=message)
                answer.fail(Code.ENGINE_FAILED, message)
                self._forget(answer)
        if answer.is_over:
            self._engine.drop(step.task)
            answer.finish(peak_memory=self._engine.peak_memory)
            self._forget(answer)

    def _fail(self, answer: Answer, code: str, message: str) -> None:
        answer.fail(code, message)
        task = answer.ticket.task
        self._chunks += [(task, chunk) for chunk in answer.drain()]
        self._forget(answer)

    def _forget(self, answer: Answer) -> None:
        del self._answers[answer.ticket.task]
        self._admission.leave(answer.ticket)


def limit(request: GenerationRequest, prompt: Prompt, context_length: int) -> GenerationRequest:
    """Cap the answer at what the context leaves beside the prompt."""
    room = context_length - len(prompt.tokens)
    return replace(request, max_tokens=room if request.max_tokens is None else min(request.max_tokens, room))
