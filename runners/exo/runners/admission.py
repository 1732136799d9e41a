"""Who waits, who runs, who must go: the queue in front of the engine.

Shared by the inbox thread (enter, cancel), the render threads (queue) and the engine thread (plan,
leave); one lock guards it. It decides and never does: no rendering, no engine, no pipe.
"""

import heapq
import threading
import time
from bisect import insort
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto

from exo.runners.engines.engine import Prompt
from exo.streams.codes import Code
from exo.streams.ids import TaskId
from exo.streams.pipe import Cancel, Generate

KEPT_TOMBSTONES = 4096
"""Cancels of tasks not seen yet that are remembered; the oldest are forgotten first."""


@dataclass(frozen=True, slots=True)
class Breach:
    """Why a request may not go on."""

    code: str
    message: str


class Stage(Enum):
    """How far a request is."""

    RENDERING = auto()
    WAITING = auto()
    RUNNING = auto()


@dataclass(slots=True, eq=False)
class Ticket:
    """A request on its way through the runner; `arrived` and `started` are monotonic seconds."""

    generate: Generate
    number: int
    arrived: float
    started: float = 0
    stage: Stage = Stage.RENDERING
    prompt: Prompt | None = None
    breach: Breach | None = None

    @property
    def task(self) -> TaskId:
        return self.generate.task

    @property
    def deadline(self) -> float | None:
        """Monotonic seconds by which it must have ended, if there is a limit."""
        limit = self.generate.time_limit
        return self.arrived + limit / 1000 if limit else None

    @property
    def rank(self) -> tuple[int, int]:
        """Place in the queue: higher priority first, then in order of arrival."""
        return (-self.generate.priority, self.number)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the engine thread has to do before the next step."""

    drops: list[Ticket] = field(default_factory=list[Ticket])
    admits: list[Ticket] = field(default_factory=list[Ticket])


class Admission:
    """The waiting room of `max_queue` places in front of `max_batch` slots."""

    def __init__(self, *, max_batch: int, max_queue: int) -> None:
        self._max_batch = max_batch
        self._max_queue = max_queue
        self._changed = threading.Condition()
        self._tickets: dict[TaskId, Ticket] = {}
        self._waiting: list[Ticket] = []
        self._running = 0
        self._broken: list[Ticket] = []
        self._deadlines: list[tuple[float, int, TaskId]] = []
        self._tombstones: OrderedDict[TaskId, Breach] = OrderedDict()
        self._closed: Breach | None = None
        self._numbers = 0

    @property
    def running(self) -> int:
        return self._running

    @property
    def queued(self) -> int:
        """Requests that wait for a slot, those still being rendered included."""
        return len(self._tickets) - self._running

    @property
    def refusal(self) -> Breach | None:
        """Why the door is closed; None while it is open."""
        return self._closed

    def is_known(self, task: TaskId) -> bool:
        return task in self._tickets

    def enter(self, generate: Generate) -> Ticket | Breach:
        """Take a request in, or say why not."""
        with self._changed:
            tombstone = self._tombstones.pop(generate.task, None)
            if refusal := tombstone or self._closed or self._find_no_room():
                return refusal
            self._numbers += 1
            ticket = Ticket(generate, self._numbers, time.monotonic())
            self._tickets[ticket.task] = ticket
            if ticket.deadline is not None:
                heapq.heappush(self._deadlines, (ticket.deadline, ticket.number, ticket.task))
            return ticket

    def _find_no_room(self) -> Breach | None:
        if len(self._tickets) < self._max_batch + self._max_queue:
            return None
        return Breach(Code.OVERLOADED, f"{self.queued} requests are waiting already; try again later")

    def find_position(self, ticket: Ticket) -> int:
        """Count the requests that must end before this one starts; 0 when a slot is free."""
        with self._changed:
            ahead = sum(1 for other in self._waiting if other.rank < ticket.rank)
            return max(0, self._running + ahead + 1 - self._max_batch)

    def queue(self, ticket: Ticket, prompt: Prompt) -> None:
        """Let a rendered request wait for its slot."""
        with self._changed:
            ticket.prompt = prompt
            ticket.stage = Stage.WAITING
            insort(self._waiting, ticket, key=lambda other: other.rank)
            if ticket.breach is not None:
                self._broken.append(ticket)
            self._changed.notify()

    def cancel(self, cancel: Cancel) -> None:
        """Mark a request as cancelled; a request that has not come yet will be refused when it does."""
        breach = Breach(cancel.code, cancel.message)
        with self._changed:
            ticket = self._tickets.get(cancel.task)
            if ticket is not None:
                self._break(ticket, breach)
                return
            self._tombstones[cancel.task] = breach
            if len(self._tombstones) > KEPT_TOMBSTONES:
                self._tombstones.popitem(last=False)

    def close(self, breach: Breach) -> None:
        """Refuse every new request for this reason from now on; the ones inside go on."""
        with self._changed:
            self._closed = breach
            self._changed.notify()

    def open(self) -> None:
        """Let requests in."""
        with self._changed:
            self._closed = None

    def break_all(self, breach: Breach) -> None:
        """End every request inside for this reason."""
        with self._changed:
            for ticket in self._tickets.values():
                self._break(ticket, breach)

    def _break(self, ticket: Ticket, breach: Breach) -> None:
        if ticket.breach is not None:
            return
        ticket.breach = breach
        if ticket.stage is not Stage.RENDERING:
            self._broken.append(ticket)
            self._changed.notify()

    def plan(self, *, now: float) -> Plan:
        """Say whom to drop and whom to start; `now` is in monotonic seconds."""
        with self._changed:
            self._break_overdue(now)
            drops = [ticket for ticket in self._broken if self._tickets.get(ticket.task) is ticket]
            self._broken.clear()
            for ticket in drops:
                self._forget(ticket)
            return Plan(drops, self._pick_next())

    def _break_overdue(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number, task = heapq.heappop(self._deadlines)
            ticket = self._tickets.get(task)
            if ticket is not None and ticket.number == number:
                self._break(ticket, Breach(Code.DEADLINE_EXCEEDED, "the request did not end before its deadline"))

    def _pick_next(self) -> list[Ticket]:
        count = min(len(self._waiting), self._max_batch - self._running)
        admits, self._waiting = self._waiting[:count], self._waiting[count:]
        for ticket in admits:
            ticket.stage = Stage.RUNNING
            ticket.started = time.monotonic()
        self._running += count
        return admits

    def leave(self, ticket: Ticket) -> None:
        """Forget a request that has ended."""
        with self._changed:
            self._forget(ticket)
            if self._closed is not None:
                self._changed.notify()

    def _forget(self, ticket: Ticket) -> None:
        if self._tickets.get(ticket.task) is not ticket:
            return
        del self._tickets[ticket.task]
        if ticket.stage is Stage.RUNNING:
            self._running -= 1
        elif ticket.stage is Stage.WAITING:
            self._waiting.remove(ticket)

    def wait_for_work(self) -> bool:
        """Sleep until a step makes sense; False once the door is closed and nobody is left inside."""
        with self._changed:
            self._changed.wait_for(self._has_news)
            return not self._is_drained()

    def _has_news(self) -> bool:
        return bool(self._running or self._waiting or self._broken) or self._is_drained()

    def _is_drained(self) -> bool:
        return self._closed is not None and not self._tickets
