"""What this gateway has under way, and how it comes through a hub that moves.

A new session knows requests only as far as its hub had folded the log, and none of their bodies. For
each request without an end its gateway stores the body again (only what a resume needs, once the
answer has begun) and, when State does not know the request any more, submits it again under the same
ids: to the instance that had it. Until output of its answer is out, a request whose node or instance
is lost is begun anew, elsewhere or there when it comes back. What ended lately is stored again too, so
that any node can resume it.
"""

import asyncio
from collections import deque
from time import monotonic
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from exo.broker.errors import BrokerError, BusUnavailableError
from exo.gateway.availability import is_running
from exo.gateway.commands import Commander, now_ms
from exo.gateway.errors import GatewayError
from exo.gateway.hub import RelayHub, Spawn
from exo.gateway.outages import Outages
from exo.gateway.ports import StateSource
from exo.gateway.request_store import PreparedRequest, RequestStore
from exo.streams.codes import Code
from exo.streams.commands import SubmitTask
from exo.streams.ids import InstanceId, SessionId, TaskId, new_command_id
from exo.streams.requests import StoredRequest
from exo.streams.state import State
from exo.streams.tasks import EndedTask
from exo.streams.views import is_lost

log = structlog.get_logger(__name__)

KEPT_ENDED: Final = 1024
KEPT_FOR: Final = 900.0
"""Seconds that the record of an answer which has ended can be brought to a new hub; its chunks live as long."""
PLACE_PATIENCE: Final = 18.0
"""Seconds in which a merge may place the instance again that has the request."""
ASK_PATIENCE: Final = 20.0
ANEW_PATIENCE: Final = 30.0
"""Seconds in which a lost instance may come back, or another one be ready."""
MOST_ATTEMPTS_ANEW: Final = 2
_CLEANUP_PERIOD: Final = 1.0
_RETRY: Final = 0.2
_SILENCES: Final = frozenset({Code.MASTER_UNAVAILABLE, Code.BROKER_UNAVAILABLE})
_PASSING: Final = _SILENCES | {Code.MODEL_LOADING, Code.MODEL_NOT_RUNNING, Code.COMMAND_EXPIRED}


class Submission(msgspec.Struct, kw_only=True, eq=False):
    """One request without an end."""

    command: SubmitTask
    kept: StoredRequest
    prepared: PreparedRequest | None
    """With its body, until output is out: nobody needs that again."""
    submitted_at: float = msgspec.field(default_factory=monotonic)
    assigned: bool = False
    begun: bool = False
    """Whether any chunk of the answer was seen, be it without output."""
    is_renewed: bool = False
    """Whether it is being begun anew right now."""
    renewals: int = 0
    instance: InstanceId = InstanceId("")
    attempt: int = 1


class Submissions:
    """All requests of this gateway that have no end yet, and those that ended lately."""

    def __init__(
        self,
        requests: RequestStore,
        states: StateSource,
        *,
        commander: Commander,
        outages: Outages,
        hub: RelayHub,
        spawn: Spawn,
    ) -> None:
        self._requests = requests
        self._states = states
        self._commander = commander
        self._outages = outages
        self._hub = hub
        self._spawn = spawn
        self._open: dict[TaskId, Submission] = {}
        self._ended: deque[tuple[float, StoredRequest]] = deque(maxlen=KEPT_ENDED)
        self.renews = True
        """Whether lost requests are begun anew: a gateway that is about to stop has no time for it."""
        self._stop_listening = states.on_session(self._on_session)

    def add(self, prepared: PreparedRequest, command: SubmitTask) -> Submission:
        """Take note of a request that is about to be submitted."""
        submission = Submission(command=command, kept=prepared.kept, prepared=prepared)
        self._open[command.task] = submission
        return submission

    def note_assigned(self, submission: Submission) -> None:
        """Take note that an instance has it."""
        submission.assigned = True
        self._note_record(submission, self._states.state)

    def note_begun(self, task: TaskId) -> None:
        """Take note that the answer has begun: a new session gives it to the instance that makes it, or to none."""
        submission = self._open.get(task)
        if submission is not None:
            submission.begun = True

    def note_output(self, task: TaskId) -> None:
        """Take note that output is out: the body of the request is not needed again."""
        submission = self._open.get(task)
        if submission is not None:
            submission.prepared = None

    def begin_anew(self, ended: EndedTask) -> bool:
        """Submit a request again that was lost before any output; gives whether it goes on."""
        submission = self._open.get(ended.id)
        if submission is None or not self._is_renewable(submission, ended):
            return False
        self._renew_soon(submission, GatewayError(ended.code, ended.message))
        return True

    def drop(self, task: TaskId) -> None:
        """Forget a request that never was assigned."""
        self._open.pop(task, None)

    async def run(self) -> None:
        """Replace the stored text of each request that has ended, until cancelled."""
        try:
            while True:
                await asyncio.sleep(_CLEANUP_PERIOD)
                for submission in [one for one in self._open.values() if self._has_ended(one)]:
                    await self._end(submission)
        finally:
            self._stop_listening()

    def _has_ended(self, submission: Submission) -> bool:
        state, task = self._states.state, submission.command.task
        if not submission.assigned or task in state.tasks:
            return False
        ended = state.ended_tasks.get(task)
        if ended is not None:
            return not (self._is_renewable(submission, ended) and self._hub.waits_for(task))
        # A new session may have lost it with the last events of the old one; then it comes back.
        return not self._outages.settling

    async def _end(self, submission: Submission) -> None:
        self._open.pop(submission.command.task, None)
        self._ended.append((monotonic(), submission.kept))
        await self._requests.forget(submission.kept)

    def _note_record(self, submission: Submission, state: State) -> None:
        record = state.tasks.get(submission.command.task)
        if record is not None:
            submission.instance, submission.attempt = record.instance, record.attempt

    def _on_session(self, old: State, new: State) -> None:
        for submission in self._open.values():
            self._note_record(submission, old)
            self._spawn(self._carry(submission, new.session))
        self._spawn(self._carry_ended(new.session))

    async def _carry_ended(self, session: SessionId) -> None:
        while self._ended and monotonic() - self._ended[0][0] > KEPT_FOR:
            self._ended.popleft()
        for _, kept in list(self._ended):
            if self._states.state.session != session or not await self._store(kept, None, session):
                return

    async def _carry(self, submission: Submission, session: SessionId) -> None:
        """Bring one request over to a new session; another session that begins meanwhile starts this anew."""
        if not await self._store(submission.kept, submission.prepared, session):
            return
        if submission.command.task not in self._open:
            await self._requests.forget(submission.kept)
        # Before it is assigned, whoever waits for the master's answer has the command sent again.
        while submission.assigned and not submission.is_renewed and self._is_lost(submission, session):
            await self._await_place(submission)
            if not self._is_lost(submission, session):
                return
            try:
                await self._commander.execute(self._repeat(submission), patience=ASK_PATIENCE)
            except GatewayError as refused:
                if refused.code == Code.CLUSTER_MERGED and self._may_renew(submission):
                    self._renew_soon(submission, refused)
                    return
                if refused.code not in _SILENCES:
                    await self._give_up(submission, session, refused)
                    return
            else:
                log.info("a request goes on after the hub moved", task=submission.command.task)
                return

    def _is_lost(self, submission: Submission, session: SessionId) -> bool:
        """Whether this session knows nothing of a request that somebody still waits for."""
        state, task = self._states.state, submission.command.task
        unknown = task not in state.tasks and state.ended_tasks.get(task) is None
        return unknown and state.session == session and task in self._open

    async def _store(self, kept: StoredRequest, prepared: PreparedRequest | None, session: SessionId) -> bool:
        """Store a request as often as it takes; gives False when the session is over."""
        while self._states.state.session == session:
            try:
                if prepared is None:
                    await self._requests.keep(kept)
                else:
                    await self._requests.write(prepared)
            except BusUnavailableError:
                await asyncio.sleep(_RETRY)
            except BrokerError as error:
                log.warning("a request cannot be stored again", task=kept.task, error=str(error))
                return True
            else:
                return True
        return False

    async def _await_place(self, submission: Submission) -> None:
        """Give the instance time to be placed again, which takes a merge a moment."""
        task, instance = submission.command.task, submission.instance
        try:
            await self._states.wait(
                lambda state: instance in state.instances or task in state.tasks, timeout=PLACE_PATIENCE
            )
        except TimeoutError:
            log.debug("the instance of a request has not come back", task=task, instance=instance)

    def _repeat(self, submission: Submission) -> SubmitTask:
        return replace(
            submission.command,
            issued_at=now_ms(),
            time_limit=self._time_left(submission),
            resume_on=submission.instance,
            admitted=submission.begun,
            attempt=submission.attempt,
        )

    def _time_left(self, submission: Submission) -> int:
        limit = submission.command.time_limit
        spent = int((monotonic() - submission.submitted_at) * 1000)
        return max(limit - spent, 1) if limit else 0

    async def _give_up(self, submission: Submission, session: SessionId, refused: GatewayError) -> None:
        if not self._is_lost(submission, session):
            return
        task = submission.command.task
        log.warning("a request is lost with its hub", task=task, code=refused.code, reason=refused.message)
        self._hub.fail(task, refused.code, refused.message)
        await self._end(submission)

    def _may_renew(self, submission: Submission) -> bool:
        return self.renews and submission.prepared is not None and submission.renewals < MOST_ATTEMPTS_ANEW

    def _is_renewable(self, submission: Submission, ended: EndedTask) -> bool:
        if submission.is_renewed:
            return True
        return self._may_renew(submission) and is_lost(self._states.state, ended)

    def _renew_soon(self, submission: Submission, why: GatewayError) -> None:
        if not submission.is_renewed:
            submission.is_renewed = True
            submission.renewals += 1
            self._spawn(self._renew(submission, why))

    async def _renew(self, submission: Submission, why: GatewayError) -> None:
        """Have a lost request begun anew by any instance; when none is ready in time it ends as it was lost."""
        task, lost = submission.command.task, submission.instance
        log.info("a request is begun anew", task=task, because=why.code, instance=lost)
        try:
            async with asyncio.timeout(ANEW_PATIENCE):
                await self._submit_anew(submission)
        except (GatewayError, TimeoutError):
            log.warning("a lost request could not be begun anew", task=task, because=why.code)
            self._hub.fail(task, why.code, why.message)
        else:
            if submission.instance != lost:
                self._hub.expect(task, attempt=submission.attempt)
        finally:
            submission.is_renewed = False

    async def _submit_anew(self, submission: Submission) -> None:
        task, attempt = submission.command.task, submission.attempt + 1
        while True:
            await self._states.wait(lambda state: is_running(state, submission.command.model))
            if not self._hub.waits_for(task):
                raise GatewayError(Code.CANCELLED, "nobody waits for the answer any more")
            command = replace(
                submission.command,
                command_id=new_command_id(),
                issued_at=now_ms(),
                time_limit=self._time_left(submission),
                attempt=attempt,
            )
            try:
                await self._commander.execute(command)
            except GatewayError as refused:
                # What an earlier command achieved whose answer did not come is no refusal.
                is_done = refused.code == Code.TASK_EXISTS and task in self._states.state.tasks
                if not is_done and refused.code not in _PASSING:
                    raise
                if not is_done:
                    await asyncio.sleep(_RETRY)
                    continue
            self._note_record(submission, self._states.state)
            return
