"""`Supervisor`: one runner of one instance, over all its attempts.

Starts the process, turns its frames into chunks and facts, notices that it hangs or dies, and ends
its requests then. The worker tells it what to do; it decides nothing but its own back-off.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from exo.services.clock import Clock
from exo.services.placement.memory import engine_of
from exo.services.settings import NodeSettings
from exo.services.worker.backoff import STABLE_AFTER, pause_after
from exo.services.worker.options import build_options
from exo.services.worker.plan import LocalRunner
from exo.services.worker.process import Exit, FrameError, RunnerProcess, start_runner
from exo.services.worker.tokens import TokenBook, TokenPublisher
from exo.streams import pipe
from exo.streams.chunks import TERMINAL, Chunk
from exo.streams.codec import CodecError
from exo.streams.codes import Code
from exo.streams.ids import TaskId
from exo.streams.instances import Failed, Instance, Loading, Ready, RunnerStatus, Shard, Starting, Stopping
from exo.streams.requests import GenerationRequest
from exo.streams.tasks import TaskRecord

log = structlog.get_logger(__name__)

SILENCE = 10.0
"""Seconds without a sign of life after which a runner counts as hung."""
STUCK = 600.0
"""Seconds without any progress - a step while requests run, a change of status before - after which it is stuck.

Far beyond the longest prefill step or the reading of one layer: its heart beats, so it may just be slow.
"""
_WATCH_INTERVAL = 1.0
_PROGRESS_INTERVAL = 0.5
_COUNT_TIMEOUT = 30.0
_LAST_WORDS = 5.0
"""Seconds for a runner that reported its failure to write its traceback and exit."""
_FINAL = frozenset({Code.MODEL_FILES_MISSING, Code.UNPLACEABLE})
"""Failures that another attempt cannot mend."""


class Supervisor:
    """One runner. `on_status` is told every change; `on_change` wakes the worker."""

    def __init__(
        self,
        instance: Instance,
        shard: Shard,
        *,
        settings: NodeSettings,
        clock: Clock,
        publisher: TokenPublisher,
        book: TokenBook,
        on_status: Callable[[Shard, RunnerStatus], None],
        on_change: Callable[[], None],
    ) -> None:
        self.instance = instance
        self.shard = shard
        self.beat: pipe.Beat | None = None
        self._settings = settings
        self._clock = clock
        self._publisher = publisher
        self._book = book
        self._on_status = on_status
        self._on_change = on_change
        self._process: RunnerProcess | None = None
        self._status: RunnerStatus = Starting()
        self._alive = False
        self._stopping = False
        self._attempt = 0
        self._reported: Failed | None = None
        self._reported_at = 0.0
        self._ready_since: float | None = None
        self._due_at = 0.0
        self._heard_at = 0.0
        self._moved_at = 0.0
        self._progress_at = 0.0
        self._tasks: dict[TaskId, int] = {}
        """Every request begun and not ended, with its attempt."""
        self._handed: set[TaskId] = set()
        self._cancelled: set[TaskId] = set()
        self._disowned: set[TaskId] = set()
        self._calls: dict[int, asyncio.Future[pipe.Counted]] = {}
        self._last_call = 0

    def view(self) -> LocalRunner:
        """Give what `plan` needs to know."""
        return LocalRunner(
            id=self.shard.runner,
            instance=self.instance.id,
            status=self._status,
            alive=self._alive,
            stopping=self._stopping,
            is_due=isinstance(self._status, Failed) and self._status.retry_at > 0 and self.pause <= 0,
            tasks=frozenset(self._tasks.keys() - self._cancelled),
        )

    @property
    def pause(self) -> float:
        """Seconds until a failed one may be started again, on the clock that no correction of the time turns."""
        return self._due_at - self._clock.monotonic()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def begin_attempt(self) -> None:
        """Count one more start; `run` must follow."""
        self._alive = True
        self._attempt += 1
        self._status = Starting()
        self._reported, self._ready_since = None, None

    async def run(self, model_path: Path | None) -> None:
        """Live through one attempt, from start to exit; returns when the process is gone and all is told."""
        try:
            failure = await self._attempt_once(model_path)
        except Exception as error:
            log.exception("the supervision of a runner failed", runner=self.shard.runner)
            failure = self._fail(Code.INTERNAL, f"the supervision of the runner failed: {error!r}")
        finally:
            self._process, self.beat = None, None
            self._alive = False
        if failure is None:
            await self._end_tasks(Code.INSTANCE_REMOVED, "the model was stopped")
            return
        # Before anything is awaited, so that no further request is given to it.
        self._status = failure
        if failure.retry_at:
            # Told first, so that whoever asks again is not sent here.
            self._on_status(self.shard, failure)
        await self._end_tasks(failure.code, failure.message)
        if not failure.retry_at:
            # Told last: the master removes the instance, which would end its requests with another code.
            self._on_status(self.shard, failure)

    def begin_task(self, task: TaskRecord) -> None:
        """Count a request as this runner's before its body is fetched."""
        self._tasks[task.id] = task.attempt

    async def generate(self, frame: pipe.Generate) -> None:
        """Hand over a request that was begun."""
        if self._process is not None and frame.task in self._tasks:
            self._handed.add(frame.task)
            await self._process.send(frame)

    def begin_cancel(self, task: TaskId) -> None:
        """Count a request as cancelled before the runner was told."""
        self._cancelled.add(task)

    async def cancel(self, task: TaskId, *, code: str, message: str) -> None:
        """Tell the runner to drop a request; it answers with the terminal chunk.

        One whose body is still being fetched is not told: it is not handed over then.
        """
        if self._process is not None and task in self._handed:
            await self._process.send(pipe.Cancel(task=task, code=code, message=message))

    def begin_disown(self, task: TaskId) -> None:
        """Count a request as somebody else's: nothing more of it is published from here; `cancel` must follow."""
        self._cancelled.add(task)
        self._disowned.add(task)

    async def end_task(self, task: TaskId, *, attempt: int, code: str, message: str) -> None:
        """Publish the terminal chunk in the runner's place."""
        is_disowned = task in self._disowned
        self._forget(task)
        if is_disowned:
            return
        chunk = self._book.break_off(task, attempt=attempt, code=code, message=message)
        await self._publisher.publish(task, chunk)

    async def count_tokens(self, request: GenerationRequest) -> pipe.Counted:
        """Ask the runner to render and count; a refusal comes as a code."""
        self._last_call += 1
        call = self._last_call
        if self._process is None or not isinstance(self._status, Ready):
            return pipe.Counted(call=call, tokens=0, code=Code.MODEL_LOADING, message="the model is not ready")
        answer: asyncio.Future[pipe.Counted] = asyncio.get_running_loop().create_future()
        self._calls[call] = answer
        try:
            await self._process.send(pipe.CountTokens(call=call, request=request))
            async with asyncio.timeout(_COUNT_TIMEOUT):
                return await answer
        except TimeoutError:
            return pipe.Counted(call=call, tokens=0, code=Code.RUNNER_FAILED, message="the runner did not answer")
        finally:
            self._calls.pop(call, None)

    def begin_stop(self) -> None:
        """From now on nothing is given to it, and its end is no failure."""
        self._stopping = True

    async def stop(self, *, grace: float) -> None:
        """Ask the process to end, let its requests run for up to `grace` seconds, and wait until it is gone."""
        self.begin_stop()
        process = self._process
        if process is not None:
            self._change_status(Stopping())
            await process.send(pipe.Stop(grace=grace))
            await process.end(patience=grace + 3)

    async def _attempt_once(self, model_path: Path | None) -> Failed | None:
        if engine_of(self.instance.model) == "mlx" and model_path is None:
            message = f"the files of {self.instance.model.model_id} are not on this node"
            return self._fail(Code.MODEL_FILES_MISSING, message)
        try:
            process = await start_runner(self._settings.runner_command)
        except OSError as error:
            return self._fail(Code.RUNNER_FAILED, f"the runner could not be started: {error}")
        self._process = process
        self._heard_at = self._moved_at = self._clock.monotonic()
        log.info("a runner was started", runner=self.shard.runner, pid=process.pid, attempt=self._attempt)
        watch = asyncio.create_task(self._watch(process))
        try:
            await process.send(self._start_frame(model_path))
            await self._read_frames(process)
            # Its output has ended: whatever it still does, nobody can hear it.
            await process.end(patience=1)
            return self._judge(await process.wait())
        finally:
            watch.cancel()
            process.kill("the node went down")
            await process.wait()

    def _start_frame(self, model_path: Path | None) -> pipe.Start:
        return pipe.Start(
            instance=self.instance,
            shard=self.shard,
            model_path=str(model_path or ""),
            options=build_options(self.instance, self.shard, self._settings.engine),
        )

    async def _read_frames(self, process: RunnerProcess) -> None:
        try:
            async for frame in process.frames():
                self._heard_at = self._clock.monotonic()
                await self._take(frame)
        except (CodecError, FrameError) as error:
            process.kill(f"the runner wrote what is no frame: {error}")

    async def _take(self, frame: pipe.FromRunner) -> None:
        match frame:
            case pipe.Emitted(chunks=chunks):
                for task, chunk in chunks:
                    await self._pass_on(task, chunk)
            case pipe.Beat():
                self._take_beat(frame)
            case pipe.StatusChanged(status=Failed() as status):
                self._reported = status
                self._reported_at = self._clock.monotonic()
            case pipe.StatusChanged(status=status):
                self._take_status(status)
            case pipe.Counted(call=call):
                future = self._calls.get(call)
                if future is not None and not future.done():
                    future.set_result(frame)

    def _take_beat(self, beat: pipe.Beat) -> None:
        is_idle = isinstance(self._status, Ready) and beat.active == 0
        if is_idle or self.beat is None or beat.steps != self.beat.steps:
            self._moved_at = self._heard_at
        self.beat = beat

    async def _pass_on(self, task: TaskId, chunk: Chunk) -> None:
        if task in self._disowned:
            if isinstance(chunk, TERMINAL):
                self._forget(task)
        elif await self._publisher.publish(task, chunk):
            self._forget(task)

    def _forget(self, task: TaskId) -> None:
        self._tasks.pop(task, None)
        self._handed.discard(task)
        self._cancelled.discard(task)
        self._disowned.discard(task)

    def _take_status(self, status: RunnerStatus) -> None:
        self._moved_at = self._heard_at
        if self._stopping:
            return
        if isinstance(status, Ready) and self._ready_since is None:
            self._ready_since = self._clock.monotonic()
        if isinstance(status, Loading) and isinstance(self._status, Loading):
            now = self._clock.monotonic()
            if now - self._progress_at < _PROGRESS_INTERVAL and status.layers_loaded < status.total_layers:
                return
            self._progress_at = now
        self._change_status(status)

    def _change_status(self, status: RunnerStatus) -> None:
        if status != self._status:
            self._status = status
            self._on_status(self.shard, status)
            self._on_change()

    async def _watch(self, process: RunnerProcess) -> None:
        """Kill a runner that hangs."""
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(_WATCH_INTERVAL)
            now = self._clock.monotonic()
            if now - before > 3 * _WATCH_INTERVAL:
                # This process itself stood still: its silence is not the runner's.
                self._heard_at = now
            because = self._find_fault(now)
            if because:
                log.error("a runner is killed", runner=self.shard.runner, pid=process.pid, because=because)
                process.kill(because)
                return

    def _find_fault(self, now: float) -> str:
        if self._reported is not None and now - self._reported_at > _LAST_WORDS:
            return self._reported.message
        if now - self._heard_at > SILENCE:
            return f"the runner gave no sign of life for {SILENCE:.0f} s and was killed"
        if now - self._moved_at > STUCK:
            return f"the runner made no progress for {STUCK:.0f} s and was killed"
        return ""

    def _judge(self, end: Exit) -> Failed | None:
        if self._stopping:
            log.info("a runner has ended", runner=self.shard.runner, status=end.status)
            return None
        reported = self._reported
        code = reported.code if reported else Code.RUNNER_FAILED
        message = reported.message if reported else end.cause
        log.error("a runner failed", runner=self.shard.runner, cause=message, status=end.status)
        return self._fail(code, message, evidence=(reported.evidence if reported else ()) or end.evidence)

    def _fail(self, code: str, message: str, *, evidence: tuple[str, ...] = ()) -> Failed:
        if self._ready_since is not None and self._clock.monotonic() - self._ready_since >= STABLE_AFTER:
            self._attempt = 1
        most = self._attempt if code in _FINAL else self._settings.max_retries
        pause = pause_after(self._attempt, most=most)
        self._due_at = self._clock.monotonic() + pause
        return Failed(
            code=code,
            message=message,
            evidence=evidence,
            attempt=self._attempt,
            retry_at=self._clock.now() + round(1000 * pause) if pause else 0,
        )

    async def _end_tasks(self, code: str, message: str) -> None:
        """End every request that the process left behind."""
        for task, attempt in list(self._tasks.items()):
            await self.end_task(task, attempt=attempt, code=code, message=message)
        for call in self._calls.values():
            if not call.done():
                call.set_result(pipe.Counted(call=0, tokens=0, code=code, message=message))
