"""The worker: makes this node's runners match State, whenever State or a runner changes.

`plan` decides, this loop performs. It acts on State, never on a single event, so nothing depends on
having seen one.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Protocol

import structlog

from exo.broker.bus import Bus
from exo.broker.errors import BrokerError
from exo.services.clock import Clock
from exo.services.journal import Journal
from exo.services.projection import Projection
from exo.services.settings import NodeSettings
from exo.services.worker.actions import (
    Action,
    CancelTask,
    DisownTask,
    DispatchTask,
    FailTask,
    RepeatEnd,
    StartRunner,
    StopRunner,
)
from exo.services.worker.bodies import Bodies
from exo.services.worker.ends import End, Ends
from exo.services.worker.plan import Attempt, Local, plan
from exo.services.worker.supervisor import Supervisor
from exo.services.worker.tokens import TokenBook, TokenPublisher
from exo.streams.codec import CodecError
from exo.streams.codes import Code
from exo.streams.control import CountReply, CountTokensOf
from exo.streams.events import InstancePlaced, Recorded, RunnerStatusChanged
from exo.streams.ids import ModelId, RunnerId, TaskId
from exo.streams.instances import Failed, RunnerStatus, Shard, Starting
from exo.streams.nodes import RunnerReport
from exo.streams.pipe import Beat, Generate
from exo.streams.state import State
from exo.streams.tasks import TaskRecord

log = structlog.get_logger(__name__)

_SHUTTING_DOWN = "the node is shutting down"
_LOOK_AGAIN = 0.05
_BODY_PATIENCE = 5.0
"""Seconds in a new session in which its gateway may still store a body anew."""
SETTLING = 30.0
"""Seconds in a new session in which instances and requests may come back that State does not know (yet).

A merge waits up to 15 s for the nodes of an instance, then the gateway submits what ran on it.
"""
_KEPT_KNOWN = 8192


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
        self._bodies = Bodies(bus, clock=clock, is_patient=lambda: self._is_new(_BODY_PATIENCE))
        self._projection = projection
        self._journal = journal
        self._models = models
        self._settings = settings
        self._clock = clock
        self._supervisors: dict[RunnerId, Supervisor] = {}
        self._known: dict[Attempt, None] = {}
        """What was dispatched or failed, oldest first: nothing runs twice, even when a session forgot it."""
        self._ends = Ends()
        self._session_began = float("-inf")
        self._changed = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._accepting = True
        self._book = TokenBook(settings.node, clock=clock)
        self._publisher = TokenPublisher(bus, self._book, node=settings.node, clock=clock, on_end=self._record_end)

    async def run(self) -> None:
        """Work until cancelled; runners that still live then are killed."""
        stop_listening = self._projection.on_event(self._notice)
        stop_meeting = self._projection.on_session(self._begin_session)
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
            stop_meeting()

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

    def has_ended(self, task: TaskId) -> bool:
        """Whether this process life has ended a request, known to the log or not."""
        return task in self._ends

    def uses(self, model: ModelId) -> bool:
        """Whether a runner of this node has a model's files open."""
        return any(one.instance.model.model_id == model for one in self._supervisors.values())

    async def cancel_task(self, task: TaskId, *, reason: str) -> bool:
        """Drop a request of a runner here without asking the master: for a gateway of this node that has no hub.

        Gives whether it was here. The log ends it for everybody once there is one again.
        """
        for one in self._supervisors.values():
            if task in one.view().tasks:
                one.begin_cancel(task)
                await one.cancel(task, code=Code.CANCELLED, message=reason)
                return True
        return False

    async def count_tokens(self, asked: CountTokensOf) -> CountReply:
        """Let the instance's runner render and count."""
        for one in self._supervisors.values():
            if one.instance.id == asked.instance and one.shard.rank == 0:
                counted = await one.count_tokens(asked.request)
                return CountReply(tokens=counted.tokens, code=counted.code, message=counted.message)
        message = f"instance {asked.instance} does not run on this node"
        return CountReply(code=Code.INSTANCE_NOT_FOUND, message=message)

    def _look(self) -> Local:
        return Local(
            node=self._settings.node,
            boot=self._settings.boot,
            runners={key: one.view() for key, one in self._supervisors.items()},
            known_tasks=self._known,
            unsaid_ends=self._ends.unsaid,
            is_settling=self._is_new(SETTLING),
        )

    def _is_new(self, seconds: float) -> bool:
        """Whether the session is younger than this, as far as this node has seen."""
        return self._clock.monotonic() < self._session_began + seconds

    def _know(self, task: TaskRecord) -> None:
        self._known[task.id, task.attempt] = None
        if len(self._known) > _KEPT_KNOWN:
            at_work = self._projection.state.tasks.keys()
            oldest = [attempt for attempt in list(self._known)[: _KEPT_KNOWN // 2] if attempt[0] not in at_work]
            for attempt in oldest:
                del self._known[attempt]

    def _begin_session(self, _old: State, _new: State) -> None:
        self._session_began = self._clock.monotonic()
        self._ends.begin_session()
        self._changed.set()
        self._spawn(self._look_when_settled())

    async def _look_when_settled(self) -> None:
        await self._clock.sleep(SETTLING)
        self._changed.set()

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
                self._know(task)
                self._supervisors[runner].begin_task(task)
                self._spawn(self._dispatch(task, self._supervisors[runner]))
            case CancelTask(runner=runner, task=task, code=code, message=message):
                self._supervisors[runner].begin_cancel(task)
                self._spawn(self._supervisors[runner].cancel(task, code=code, message=message))
            case DisownTask(runner=runner, task=task):
                self._supervisors[runner].begin_disown(task)
                message = "the request was begun anew elsewhere"
                self._spawn(self._supervisors[runner].cancel(task, code=Code.CANCELLED, message=message))
            case RepeatEnd(task=task):
                self._journal.record(self._ends.say(task))
            case FailTask(task=task, code=code, message=message):
                self._know(task)
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
            # Timers may fire a millisecond early, and nobody would wake us again.
            while (pause := supervisor.pause) > 0:
                await self._clock.sleep(pause)
        self._changed.set()

    async def _stop_one(self, supervisor: Supervisor) -> None:
        await supervisor.stop(grace=0)
        if not supervisor.view().alive:
            self._supervisors.pop(supervisor.shard.runner, None)
        self._changed.set()

    async def _dispatch(self, task: TaskRecord, supervisor: Supervisor) -> None:
        try:
            request = await self._bodies.fetch(task.id)
        except (BrokerError, CodecError):
            log.exception("the body of a request cannot be read", task=task.id)
            request = None
        state = self._projection.state
        current, ended = state.tasks.get(task.id), state.ended_tasks.get(task.id)
        if current is not None and current.instance != task.instance:
            supervisor.begin_disown(task.id)
            await supervisor.end_task(task.id, attempt=task.attempt, code=Code.CANCELLED, message="begun elsewhere")
        elif current is None and (ended is not None or not self._is_new(SETTLING)):
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
                time_limit=task.time_limit,
                priority=task.priority,
            )
            await supervisor.generate(frame)

    async def _fail(self, task: TaskRecord, code: str, message: str) -> None:
        chunk = self._book.break_off(task.id, attempt=task.attempt, code=code, message=message)
        await self._publisher.publish(task.id, chunk)

    def _fail_known(self) -> None:
        """After this loop itself has failed: what it had handed out lost its runner."""
        for task in self._projection.state.tasks.values():
            if (task.id, task.attempt) in self._known:
                self._spawn(self._fail(task, Code.RUNNER_FAILED, "the worker of the node was restarted"))

    def _record_status(self, shard: Shard, status: RunnerStatus) -> None:
        if shard.runner in self._projection.state.runners:
            fact = RunnerStatusChanged(node=self._settings.node, runner=shard.runner, status=status)
            self._journal.record(fact)

    def _record_end(self, end: End) -> None:
        self._ends.add(end)
        # A task that a decision has ended already keeps that end; one that this session does not know
        # (yet) gets it said when its gateway has brought it back.
        if end.fact.task in self._projection.state.tasks:
            self._journal.record(self._ends.say(end.fact.task))

    def _notice(self, recorded: Recorded, state: State) -> None:
        self._changed.set()
        event = recorded.envelope.event if recorded.envelope else None
        if isinstance(event, InstancePlaced):
            self._correct_status(event, state)

    def _correct_status(self, event: InstancePlaced, state: State) -> None:
        """Say how a runner is that lived before its instance was placed: it was silent while nobody knew it."""
        for shard in event.instance.shards:
            one = self._supervisors.get(shard.runner)
            if one is not None and one.view().status != state.runners[shard.runner].status:
                self._record_status(shard, one.view().status)

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
        case CancelTask() | DisownTask() | RepeatEnd():
            return action
        case _:
            return None
