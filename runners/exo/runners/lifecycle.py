"""The life of a runner: starting, loading, warming up, ready, stopping; or failed, with its reason.

Shutdown order: the door is closed first, so that every request is answered one way or the other;
running answers have `grace` seconds to end; then the rest is broken off, and the engine closed.
"""

import gc
import os
import threading
import time
from collections.abc import Callable

import structlog

from exo.runners.admission import Admission, Breach
from exo.runners.engines.engine import Engine
from exo.runners.heartbeat import Heartbeat
from exo.runners.inbox import Inbox
from exo.runners.outbox import Outbox
from exo.runners.reception import Reception
from exo.runners.runner import Runner
from exo.runners.warmup import warm_up
from exo.streams.codes import Code
from exo.streams.instances import Failed, Loading, Ready, Starting, Stopping, WarmingUp
from exo.streams.pipe import Cancel, CountTokens, Generate, Start, Stop, ToRunner

log = structlog.get_logger(__name__)

FAILED = 1
"""Exit status after `StatusChanged(Failed)`."""
STUCK = 5
"""Exit status when a stop was asked for and the step in hand did not end."""
STOP_LIMIT = 10.0
"""Seconds that a step and closing the engine may take after the grace is over."""
_LOADING = Breach(Code.MODEL_LOADING, "the model is still being loaded")
_STOPPING = Breach(Code.INSTANCE_REMOVED, "the runner is being stopped")


class Lifecycle:
    """One runner from its `Start` frame to its exit status."""

    def __init__(self, start: Start, *, inbox: Inbox, outbox: Outbox, build: Callable[[Start], Engine]) -> None:
        self._start = start
        self._inbox = inbox
        self._outbox = outbox
        self._build = build
        self._admission = Admission(max_batch=start.options.max_batch, max_queue=start.options.max_queue)
        self._admission.close(_LOADING)
        self._is_ready = False
        self._is_stopping = False

    def run(self) -> int:
        """Live; give the exit status."""
        self._outbox.report(Starting())
        heartbeat = Heartbeat(self._outbox, self._admission)
        heartbeat.start()
        try:
            engine = self._build(self._start)
            reception = Reception(engine, self._admission, self._outbox)
            runner = Runner(engine, self._admission, self._outbox)
            heartbeat.watch(runner)
            self._inbox.listen(lambda message: self._handle(message, reception))
            self._load(engine)
        except Exception as error:
            log.exception("the runner could not start")
            return self._fail(error)
        return self._serve(runner, reception)

    def stop(self, grace: float) -> None:
        """Begin to stop; callable from any thread. A second call with a shorter grace shortens it."""
        log.info("stopping", grace=grace, requests=self._admission.running + self._admission.queued)
        if not self._is_stopping:
            self._is_stopping = True
            self._outbox.report(Stopping())
        if not self._is_ready:
            os._exit(0)
        self._admission.close(_STOPPING)
        _start_timer(grace, lambda: self._admission.break_all(_STOPPING))
        _start_timer(grace + STOP_LIMIT, lambda: os._exit(STUCK))

    def _load(self, engine: Engine) -> None:
        began = time.monotonic()
        engine.load(lambda layers, total: self._outbox.report(Loading(layers, total)))
        self._outbox.report(WarmingUp())
        warm_up(engine, self._start.instance.model.model_id)
        # What loading built stays for good: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        log.info("ready", model=self._start.instance.model.model_id, seconds=round(time.monotonic() - began, 3))

    def _serve(self, runner: Runner, reception: Reception) -> int:
        self._is_ready = True
        self._admission.open()
        self._outbox.report(Ready())
        try:
            while self._admission.wait_for_work():
                runner.step()
        except Exception as error:
            log.exception("the engine broke")
            runner.abandon(Breach(Code.RUNNER_FAILED, _describe(error)))
            reception.close()
            return self._fail(error)
        reception.close()
        runner.close()
        return 0

    def _fail(self, error: Exception) -> int:
        self._outbox.report(Failed(code=_find_code(error), message=_describe(error)))
        return FAILED

    def _handle(self, message: ToRunner, reception: Reception) -> None:
        match message:
            case Generate():
                reception.receive(message)
            case Cancel():
                self._admission.cancel(message)
            case CountTokens():
                reception.count(message)
            case Stop(grace=grace):
                self.stop(grace)
            case Start():
                log.error("a second start was ignored", instance=message.instance.id)


def _start_timer(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def _find_code(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return Code.MODEL_FILES_MISSING
    return Code.INSUFFICIENT_MEMORY if isinstance(error, MemoryError) else Code.RUNNER_FAILED


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
