"""Where requests arrive: rendered and tokenised on threads of their own, never behind an engine step.

Sends the first chunk of every answer: `Admitted` before a slot is free, or `Rejected`, which is
then also the last.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from exo.runners.admission import Admission, Breach, Ticket
from exo.runners.engines.engine import Engine, Prompt, RequestRefusedError
from exo.runners.outbox import Outbox
from exo.streams.chunks import Admitted, Rejected
from exo.streams.codes import Code
from exo.streams.pipe import Counted, CountTokens, Generate
from exo.streams.requests import GenerationRequest

log = structlog.get_logger(__name__)

THREADS = max(2, min(4, os.cpu_count() or 2))
_Item = TypeVar("_Item")


def _run(work: Callable[[_Item], None], item: _Item) -> None:
    """Keep a fault of a render thread from vanishing in a future that nobody asks."""
    try:
        work(item)
    except Exception:
        log.exception("a render thread failed")


class Reception:
    """Takes `Generate` and `CountTokens` from the inbox thread."""

    def __init__(self, engine: Engine, admission: Admission, outbox: Outbox) -> None:
        self._engine = engine
        self._admission = admission
        self._outbox = outbox
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="render")

    def receive(self, generate: Generate) -> None:
        """Start working on a request; a task that is already inside is not taken twice."""
        if self._admission.is_known(generate.task):
            log.warning("a request came twice", task=generate.task, attempt=generate.attempt)
            return
        ticket = self._admission.enter(generate)
        if isinstance(ticket, Breach):
            self._reject(generate, ticket)
        else:
            self._threads.submit(_run, self._prepare, ticket)

    def count(self, call: CountTokens) -> None:
        """Start rendering a request only to count its tokens."""
        if refusal := self._admission.refusal:
            self._outbox.send(Counted(call=call.call, tokens=0, code=refusal.code, message=refusal.message))
        else:
            self._threads.submit(_run, self._count, call)

    def close(self) -> None:
        """Wait until every request that came has had its first chunk."""
        self._threads.shutdown(wait=True)

    def _prepare(self, ticket: Ticket) -> None:
        prompt = self._render(ticket.generate.request)
        refusal = ticket.breach or (prompt if isinstance(prompt, Breach) else self._find_overrun(ticket, prompt))
        if refusal is not None or isinstance(prompt, Breach):
            assert refusal is not None
            self._admission.leave(ticket)
            self._reject(ticket.generate, refusal)
            return
        position = self._admission.find_position(ticket)
        admitted = Admitted(ticket.generate.attempt, 0, len(prompt.tokens), position)
        self._outbox.emit([(ticket.task, admitted)])
        self._admission.queue(ticket, prompt)

    def _render(self, request: GenerationRequest) -> Prompt | Breach:
        try:
            return self._engine.render(request)
        except RequestRefusedError as refusal:
            return Breach(refusal.code, refusal.message)
        except Exception as error:
            log.exception("rendering a request failed")
            return Breach(Code.ENGINE_FAILED, f"the prompt could not be rendered: {type(error).__name__}: {error}")

    def _find_overrun(self, ticket: Ticket, prompt: Prompt) -> Breach | None:
        length, room = len(prompt.tokens), self._engine.context_length
        if length == 0:
            return Breach(Code.INVALID_REQUEST, "the prompt is empty")
        if length >= room:
            message = f"prompt is too long: {length} tokens > {room - 1} maximum, which leaves one for the answer"
            return Breach(Code.CONTEXT_LENGTH_EXCEEDED, message)
        if ticket.deadline is not None and ticket.deadline <= time.monotonic():
            return Breach(Code.DEADLINE_EXCEEDED, "the request did not start before its deadline")
        return None

    def _count(self, call: CountTokens) -> None:
        prompt = self._render(call.request)
        if isinstance(prompt, Breach):
            self._outbox.send(Counted(call=call.call, tokens=0, code=prompt.code, message=prompt.message))
        else:
            self._outbox.send(Counted(call=call.call, tokens=len(prompt.tokens)))

    def _reject(self, generate: Generate, refusal: Breach) -> None:
        rejected = Rejected(generate.attempt, 0, refusal.code, refusal.message)
        self._outbox.emit([(generate.task, rejected)])
