"""State on this node: a snapshot, then every event after it, folded in order.

The gateway, the master and the worker read `state` and wait on it; nobody else writes it. It may lag
behind the log by a few milliseconds and never runs ahead of it.
"""

import asyncio
from collections.abc import Callable

import structlog

from exo.broker.bus import Bus, StoredMessage, StreamInfo
from exo.broker.errors import NotFoundError
from exo.services.clock import Clock, SystemClock
from exo.services.service import supervise
from exo.services.snapshots.store import load_snapshot
from exo.streams.apply import apply
from exo.streams.codec import decode_event
from exo.streams.events import Recorded
from exo.streams.ids import CommandId
from exo.streams.layout import EVENTS
from exo.streams.state import Receipt, State

log = structlog.get_logger(__name__)

Listener = Callable[[Recorded, State], None]
Predicate = Callable[[State], bool]


class Projection:
    """Follows the event log for as long as `run` runs."""

    def __init__(self, bus: Bus, *, clock: Clock | None = None) -> None:
        self._bus = bus
        self._clock = clock or SystemClock()
        self._state = State()
        self._loaded = False
        self._target = 0
        self._caught_up = asyncio.Event()
        self._listeners: list[Listener] = []
        self._waiters: dict[asyncio.Future[State], Predicate] = {}
        self._answers: dict[CommandId, list[asyncio.Future[Receipt]]] = {}
        self._check_is_due = False

    @property
    def state(self) -> State:
        """The newest State that this node knows."""
        return self._state

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(recorded, state after it)` for each event; gives a function that ends it.

        It must be quick and never raise. After a new snapshot was loaded, events in between are not told.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait(self, predicate: Predicate, *, timeout: float | None = None) -> State:
        """Wait until State is as wished, `TimeoutError` after `timeout` seconds.

        Looked at once for each burst of events, so a condition that holds for an instant may be missed.
        """
        if predicate(self._state):
            return self._state
        future = asyncio.get_running_loop().create_future()
        self._waiters[future] = predicate
        try:
            async with asyncio.timeout(timeout):
                return await future
        finally:
            self._waiters.pop(future, None)

    async def answer(self, command: CommandId, *, timeout: float) -> Receipt:
        """Wait for the master's answer to a command; `TimeoutError` after `timeout` seconds."""
        known = self._state.receipts.get(command)
        if known is not None:
            return known
        future = asyncio.get_running_loop().create_future()
        self._answers.setdefault(command, []).append(future)
        try:
            async with asyncio.timeout(timeout):
                return await future
        finally:
            self._forget(command, future)

    async def caught_up(self, *, timeout: float | None = None) -> State:
        """Wait until everything that stood in the log when following began is folded."""
        async with asyncio.timeout(timeout):
            await self._caught_up.wait()
        return self._state

    async def run(self) -> None:
        """Follow for ever, through errors and lost connections."""
        await supervise("projection", self._follow, clock=self._clock)

    async def _follow(self) -> None:
        while True:
            await self._begin()
            try:
                async for message in self._bus.follow(EVENTS.name, after=self._state.applied):
                    self._fold(message)
            except NotFoundError:
                log.info("the log was cut past this node's state, a snapshot is loaded", applied=self._state.applied)
                self._loaded = False

    async def _begin(self) -> None:
        info = await self._bus.stream_info(EVENTS.name)
        if self._state.applied > info.last_sequence:
            log.warning("the log is another one than before", applied=self._state.applied, last=info.last_sequence)
            self._loaded = False
        if not self._loaded:
            self._state = await self._load(info)
            self._loaded = True
            for command in tuple(self._answers):
                self._tell_answer(command)
        self._target = info.last_sequence
        self._notice()

    async def _load(self, info: StreamInfo) -> State:
        snapshot = await load_snapshot(self._bus)
        before_log = max(info.first_sequence - 1, 0)
        if snapshot is not None and before_log <= snapshot.applied <= info.last_sequence:
            return snapshot
        if before_log and info.messages:
            log.error("the log has no beginning and no snapshot fits: what was before is lost", first=before_log + 1)
        return State(applied=before_log)

    def _fold(self, message: StoredMessage) -> None:
        recorded = decode_event(message.payload, sequence=message.sequence)
        self._state = state = apply(self._state, recorded)
        for listener in self._listeners:
            listener(recorded, state)
        if self._answers and recorded.envelope is not None and recorded.envelope.cause is not None:
            self._tell_answer(recorded.envelope.cause)
        if self._waiters or not self._caught_up.is_set():
            self._notice()

    def _tell_answer(self, command: CommandId) -> None:
        waiting = self._answers.get(command, ())
        receipt = self._state.receipts.get(command) if waiting else None
        if receipt is None:
            return
        for future in self._answers.pop(command):
            if not future.done():
                future.set_result(receipt)

    def _forget(self, command: CommandId, future: "asyncio.Future[Receipt]") -> None:
        waiting = self._answers.get(command, [])
        if future in waiting:
            waiting.remove(future)
        if not waiting:
            self._answers.pop(command, None)

    def _notice(self) -> None:
        """Check the waiters once after the burst of events that is being folded: they may be hundreds."""
        if not self._caught_up.is_set() and self._state.applied >= self._target and self._loaded:
            self._caught_up.set()
        if self._waiters and not self._check_is_due:
            self._check_is_due = True
            asyncio.get_running_loop().call_soon(self._check)

    def _check(self) -> None:
        self._check_is_due = False
        for future, predicate in list(self._waiters.items()):
            if not future.done() and predicate(self._state):
                future.set_result(self._state)
