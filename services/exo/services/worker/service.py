"""The worker: makes this node's runners match State, whenever State or a runner changes.

`plan` decides, this loop performs. It acts on State, never on a single event, so nothing depends on
having seen one.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Protocol

import structlog

from exo.broker.blobs import Blobs
from exo.broker.bus import Bus
from exo.broker.errors import BrokerError, BusUnavailableError
from exo.services.clock import Clock
from exo.services.journal import Journal
from exo.services.projection import Projection
from exo.services.settings import NodeSettings
from exo.services.worker.actions import Action, CancelTask, DispatchTask, FailTask, StartRunner, StopRunner
from exo.services.worker.plan import Local, plan
from exo.services.worker.supervisor import Supervisor
from exo.services.worker.tokens import TokenBook, TokenPublisher
from exo.streams import subjects
from exo.streams.codec import CodecError, decode_stored_request
from exo.streams.codes import Code
from exo.streams.control import CountReply, CountTokensOf
from exo.streams.events import Recorded, RunnerStatusChanged, TaskFailed, TaskFinished
from exo.streams.ids import ModelId, RunnerId, TaskId
from exo.streams.instances import Failed, RunnerStatus, Shard, Starting
from exo.streams.layout import REQUESTS
from exo.streams.nodes import RunnerReport
from exo.streams.pipe import Beat, Generate
from exo.streams.requests import GenerationRequest, StoredRequest
from exo.streams.state import State
from exo.streams.tasks import TaskRecord

log = structlog.get_logger(__name__)

_RETRY = 0.2
_SHUTTING_DOWN = "the node is shutting down"
_LOOK_AGAIN = 0.05
_BODY_TRIES = 20
_BODY_PAUSE = 0.05
"""The gateway stores a body and asks the master at the same time: seconds between two looks for it."""


class ModelPaths(Protocol):
    """Where models lie on this node."""

    def path_of(self, model: ModelId) -> Path | None:
        """Give the folder of a complete model, or None."""
        ...


class Worker:
    """All runners of this node."""

    def __init__(
        self,
        bus: Bus,
        *,
        projection: Projection,
        journal: Journal,
        models: ModelPaths,
        settings: NodeSettings,
        clock: Clock,
    ) -> None:
        self._bus = bus
        self._blobs = Blobs(bus)
        self._projection = projection
        self._journal = journal
        self._models = models
        self._settings = settings
        self._clock = clock
        self._supervisors: dict[RunnerId, Supervisor] = {}
        self._known: set[TaskId] = set()
        self._changed = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._accepting = True
        self._book = TokenBook(settings.node, clock=clock)
        self._publisher = TokenPublisher(bus, self._book, node=settings.node, clock=clock, on_end=self._record_end)

    async def run(self) -> None:
        """Work until cancelled; runners that still live then are killed."""
        stop_listening = self._projection.on_event(self._notice)
        self._changed.set()
        try:
            async with asyncio.TaskGroup() as self._group:
                self._group.create_task(self._publisher.run())
                self._fail_known()
                while True:
                    await self._changed.wait()
                    self._changed.clear()
                    for action in plan(self._projection.state, self._look()):
                        self._perform(action)
        finally:
            self._supervisors.clear()
            self._group = None
            stop_listening()

    async def stop(self, *, grace: float) -> None:
        """Take nothing new, let requests run for up to `grace` seconds, end the rest, then end the runners."""
        self._accepting = False
        supervisors = list(self._supervisors.values())
        until = self._clock.monotonic() + grace
        while any(one.view().tasks for one in supervisors) and self._clock.monotonic() < until:
            await self._clock.sleep(_LOOK_AGAIN)
        for one in supervisors:
            for task in one.view().tasks:
                await one.cancel(task, code=Code.NODE_RESTARTED, message=_SHUTTING_DOWN)
        await asyncio.gather(*(one.stop(grace=1) for one in supervisors))
        await self._publisher.drain()

    def reports(self) -> tuple[RunnerReport, ...]:
        """Give every runner as this node sees it, for `NodeReported`."""
        views = [one.view() for one in self._supervisors.values()]
        return tuple(RunnerReport(runner=view.id, status=view.status, tasks=tuple(view.tasks)) for view in views)

    def process_ids(self) -> Iterable[int]:
        """Give the process ids of all living runners."""
        return [one.pid for one in self._supervisors.values() if one.pid is not None]

    def beats(self) -> dict[RunnerId, Beat]:
        """Give the newest sign of life of every runner."""
        return {key: one.beat for key, one in self._supervisors.items() if one.beat is not None}

    def uses(self, model: ModelId) -> bool:
        """Whether a runner of this node has a model's files open."""
        return any(one.instance.model.model_id == model for one in self._supervisors.values())

    async def count_tokens(self, asked: CountTokensOf) -> CountReply:
        """Let the instance's runner render and count."""
        for one in self._supervisors.values():
            if one.instance.id == asked.instance and one.shard.rank == 0:
                counted = await one.count_tokens(asked.request)
                return CountReply(tokens=counted.tokens, code=counted.code, message=counted.message)
        message = f"instance {asked.instance} does not run on this node"
        return CountReply(code=Code.INSTANCE_NOT_FOUND, message=message)

    def _look(self) -> Local:
        running = {task for one in self._supervisors.values() for task in one.view().tasks}
        self._known &= self._projection.state.tasks.keys() | running
        return Local(
            node=self._settings.node,
            boot=self._settings.boot,
            now=self._clock.now(),
            runners={key: one.view() for key, one in self._supervisors.items()},
            known_tasks=self._known,
        )

    def _perform(self, action: Action) -> None:
        match action if self._accepting else _refuse(action):
            case None:
                pass
            case StartRunner() as start:
                self._start(start)
            case StopRunner(runner=runner):
                self._supervisors[runner].begin_stop()
                self._spawn(self._stop_one(self._supervisors[runner]))
            case DispatchTask(runner=runner, task=task):
                self._known.add(task.id)
                self._supervisors[runner].begin_task(task)
                self._spawn(self._dispatch(task, self._supervisors[runner]))
            case CancelTask(runner=runner, task=task, code=code, message=message):
                self._supervisors[runner].begin_cancel(task)
                self._spawn(self._supervisors[runner].cancel(task, code=code, message=message))
            case FailTask(task=task, code=code, message=message):
                self._known.add(task.id)
                self._spawn(self._fail(task, code, message))

    def _start(self, action: StartRunner) -> None:
        shard = action.shard
        supervisor = self._supervisors.get(shard.runner)
        if supervisor is None:
            supervisor = Supervisor(
                action.instance,
                shard,
                settings=self._settings,
                clock=self._clock,
                publisher=self._publisher,
                book=self._book,
                on_status=self._record_status,
                on_change=self._changed.set,
            )
            self._supervisors[shard.runner] = supervisor
        supervisor.begin_attempt()
        if not isinstance(self._projection.state.runners[shard.runner].status, Starting):
            self._record_status(shard, Starting())
        self._spawn(self._live(supervisor))

    async def _live(self, supervisor: Supervisor) -> None:
        await supervisor.run(self._models.path_of(supervisor.instance.model.model_id))
        view = supervisor.view()
        if view.stopping:
            self._supervisors.pop(view.id, None)
        elif isinstance(view.status, Failed) and view.status.retry_at:
            await self._sleep_until(view.status.retry_at)
        self._changed.set()

    async def _sleep_until(self, moment: int) -> None:
        """Sleep until a Unix time in ms. Timers may fire a millisecond early, and nobody would wake us again."""
        while (left := moment - self._clock.now()) > 0:
            await self._clock.sleep(left / 1000)

    async def _stop_one(self, supervisor: Supervisor) -> None:
        await supervisor.stop(grace=0)
        if not supervisor.view().alive:
            self._supervisors.pop(supervisor.shard.runner, None)
        self._changed.set()

    async def _dispatch(self, task: TaskRecord, supervisor: Supervisor) -> None:
        try:
            request = await self._fetch(task.id)
        except (BrokerError, CodecError):
            log.exception("the body of a request cannot be read", task=task.id)
            request = None
        state = self._projection.state
        if task.id not in state.tasks:
            ended = state.ended_tasks.get(task.id)
            code, message = (ended.code, ended.message) if ended and ended.code else (Code.CANCELLED, "cancelled")
            await supervisor.end_task(task.id, attempt=task.attempt, code=code, message=message)
        elif request is None:
            message = "the body of the request is not stored (any more) or cannot be read"
            await supervisor.end_task(task.id, attempt=task.attempt, code=Code.INTERNAL, message=message)
        else:
            frame = Generate(
                task=task.id,
                attempt=task.attempt,
                request=request,
                deadline=task.deadline,
                priority=task.priority,
            )
            await supervisor.generate(frame)

    async def _fetch(self, task: TaskId) -> GenerationRequest | None:
        """Read the body, which may come a moment after the assignment; None when it does not."""
        tries = 0
        while tries < _BODY_TRIES:
            try:
                stored = await self._read_stored(task)
            except BusUnavailableError:
                await self._clock.sleep(_RETRY)
                continue
            if stored:
                return stored.request
            tries += 1
            await self._clock.sleep(_BODY_PAUSE)
        return None

    async def _read_stored(self, task: TaskId) -> StoredRequest | None:
        message = await self._bus.get_last(REQUESTS.name, subjects.request(task))
        stored = decode_stored_request(message.payload) if message else None
        if stored and stored.blob:
            return decode_stored_request(await self._blobs.get(stored.blob))
        return stored

    async def _fail(self, task: TaskRecord, code: str, message: str) -> None:
        chunk = self._book.break_off(task.id, attempt=task.attempt, code=code, message=message)
        await self._publisher.publish(task.id, chunk)

    def _fail_known(self) -> None:
        """After this loop itself has failed: what it had handed out lost its runner."""
        for task in self._projection.state.tasks.values():
            if task.id in self._known:
                self._spawn(self._fail(task, Code.RUNNER_FAILED, "the worker of the node was restarted"))

    def _record_status(self, shard: Shard, status: RunnerStatus) -> None:
        if shard.runner in self._projection.state.runners:
            fact = RunnerStatusChanged(node=self._settings.node, runner=shard.runner, status=status)
            self._journal.record(fact)

    def _record_end(self, end: TaskFinished | TaskFailed) -> None:
        # A task that a decision has ended already keeps that end.
        if end.task in self._projection.state.tasks:
            self._journal.record(end)

    def _notice(self, _recorded: Recorded, _state: State) -> None:
        self._changed.set()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        assert self._group is not None
        self._group.create_task(_guard(work))


async def _guard(work: Coroutine[None, None, None]) -> None:
    """One action that fails must not take the node's other runners down."""
    try:
        await work
    except Exception:
        log.exception("an action of the worker failed")


def _refuse(action: Action) -> Action | None:
    """Give what is done instead while the node is going down: nothing begins any more."""
    match action:
        case DispatchTask(task=task) | FailTask(task=task):
            return FailTask(task, Code.NODE_RESTARTED, _SHUTTING_DOWN)
        case CancelTask():
            return action
        case _:
            return None
