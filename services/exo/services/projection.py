"""State on this node: a snapshot, then every event after it, folded in order.

The gateway, the master and the worker read `state` and wait on it; nobody else writes it. It may lag
behind the log by a few milliseconds and never runs ahead of it. Each time the connection comes back it
looks whether the log is still the one it knows: the hub may have moved, and with it the end of the log.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress

import structlog

from exo.broker.bus import Bus, StoredMessage
from exo.broker.errors import BusUnavailableError, NotFoundError
from exo.broker.hello import Position
from exo.services.clock import Clock, SystemClock
from exo.services.log_check import is_continued, rebuild
from exo.services.service import run_until, supervise
from exo.services.standby import begin_session
from exo.streams.apply import apply
from exo.streams.codec import decode_event
from exo.streams.events import Recorded
from exo.streams.ids import BootId, CommandId, NodeId, SessionId
from exo.streams.layout import EVENTS
from exo.streams.state import Receipt, State

log = structlog.get_logger(__name__)

Listener = Callable[[Recorded, State], None]
SessionListener = Callable[[State, State], None]
Predicate = Callable[[State], bool]

_NO_NODE, _NO_BOOT = NodeId(""), BootId("")
_PAUSE = 0.1


class Projection:
    """Follows the event log for as long as `run` runs; fulfils `exo.broker.standby.Standby`."""

    def __init__(
        self,
        bus: Bus,
        *,
        node: NodeId = _NO_NODE,
        boot: BootId = _NO_BOOT,
        known: State | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`node` and `boot` are who begins a session; `known` is the State of an earlier run of this node."""
        self._bus = bus
        self._node = node
        self._boot = boot
        self._clock = clock or SystemClock()
        self._state = known or State()
        self._is_loaded = known is not None
        self._folded: StoredMessage | None = None
        self._leaving: State | None = None
        """State when its session ended, until everybody was told."""
        self._target = 0
        self._moved = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._listeners: list[Listener] = []
        self._session_listeners: list[SessionListener] = []
        self._waiters: dict[asyncio.Future[State], Predicate] = {}
        self._answers: dict[CommandId, list[asyncio.Future[Receipt]]] = {}
        self._check_is_due = False

    @property
    def state(self) -> State:
        """The newest State that this node knows."""
        return self._state

    @property
    def position(self) -> Position:
        """Where State stands, for the other nodes."""
        state = self._state
        return Position(session=state.session, epoch=state.epoch, applied=state.applied, lineage=state.lineage)

    async def inaugurate(self, bus: Bus, session: SessionId) -> None:
        """Begin a session on an empty store; see `begin_session`."""
        await begin_session(bus, self._state, session=session, node=self._node, boot=self._boot, clock=self._clock)

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(recorded, state after it)` for each event; gives a function that ends it.

        It must be quick and never raise. When State had to be loaded anew, events in between are not told.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def on_session(self, listener: SessionListener) -> Callable[[], None]:
        """Call `listener(old, new)` when State is of another session; gives a function that ends it.

        `old` is State when its session ended, `new` the one that holds all that stood in the log of the new
        session when this node came to it. `is_descendant(new, old.session)` tells a hub that moved from
        another cluster. It must be quick and never raise.
        """
        self._session_listeners.append(listener)
        return lambda: self._session_listeners.remove(listener)

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
        """Follow for ever, through errors, lost connections and hubs that move."""
        await supervise("projection", self._run, clock=self._clock)

    async def _run(self) -> None:
        stop_hearing = self._bus.on_connection_change(self._hear)
        try:
            while True:
                self._moved.clear()
                try:
                    await self._begin()
                    await self._follow()
                except BusUnavailableError as error:
                    log.debug("the log cannot be read", reason=str(error))
                    await self._pause()
                except NotFoundError as error:
                    log.info("the log does not go on where State stands", reason=str(error))
                    self._is_loaded = False
                    await self._pause()
        finally:
            stop_hearing()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE):
                await self._moved.wait()

    def _hear(self, _connected: bool) -> None:  # noqa: FBT001 - the Bus port's listener
        # At a loss and at a return: nothing that comes after either may be folded unseen.
        self._moved.set()

    async def _begin(self) -> None:
        info = await self._bus.stream_info(EVENTS.name)
        continued = self._is_loaded and await is_continued(self._bus, self._state, info=info, folded=self._folded)
        state, folded = (self._state, self._folded) if continued else await rebuild(self._bus, info=info)
        if self._moved.is_set():
            # What was read may be of two logs.
            return
        self._target = info.last_sequence
        if not continued:
            self._replace(state, folded)
        if not (continued and self._caught_up.is_set()):
            self._notice()

    def _replace(self, state: State, folded: StoredMessage | None) -> None:
        old, self._state = self._state, state
        if self._is_loaded:
            log.warning("State was loaded anew", session=state.session, applied=state.applied, before=old.applied)
        self._is_loaded, self._folded = True, folded
        self._note_session(old)
        for command in tuple(self._answers):
            self._tell_answer(command)
        self._tell_session()

    async def _follow(self) -> None:
        """Fold what comes, until the connection is lost or has come back."""
        await run_until(self._moved, self._read())

    async def _read(self) -> None:
        async with aclosing(self._bus.follow(EVENTS.name, after=self._state.applied)) as messages:
            async for message in messages:
                if self._moved.is_set():
                    return
                self._fold(message)

    def _fold(self, message: StoredMessage) -> None:
        recorded = decode_event(message.payload, sequence=message.sequence)
        before = self._state
        self._state = state = apply(before, recorded)
        self._folded = message
        for listener in self._listeners:
            listener(recorded, state)
        if self._answers and recorded.envelope is not None and recorded.envelope.cause is not None:
            self._tell_answer(recorded.envelope.cause)
        if state.session != before.session:
            self._note_session(before)
        self._tell_session()
        if self._waiters or not self._caught_up.is_set():
            self._notice()

    def _note_session(self, old: State) -> None:
        if self._leaving is None and old.session:
            self._leaving = old

    def _tell_session(self) -> None:
        """Once State is whole again: what a listener does rests on it."""
        old, new = self._leaving, self._state
        if old is None or new.applied < self._target or not new.session:
            return
        self._leaving = None
        if old.session == new.session:
            return
        log.info("State is of another session", session=new.session, before=old.session, applied=new.applied)
        for listener in self._session_listeners:
            listener(old, new)

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
        if not self._caught_up.is_set() and self._state.applied >= self._target and self._is_loaded:
            self._caught_up.set()
        if self._waiters and not self._check_is_due:
            self._check_is_due = True
            asyncio.get_running_loop().call_soon(self._check)

    def _check(self) -> None:
        self._check_is_due = False
        for future, predicate in list(self._waiters.items()):
            if not future.done() and predicate(self._state):
                future.set_result(self._state)
