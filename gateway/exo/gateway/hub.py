"""Keeps every relay alive and whole: subscribes, repairs by direct get, notices ends, closes.

Its `run` is a task of the app's task group. Repairs happen on a gap, on a return of the connection, at
a new session, on a terminal fact in State and after 2 s of silence; `RelayHub` never writes to a client.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from time import monotonic
from typing import Any, Final

import structlog

from exo.broker.bus import Bus
from exo.broker.errors import BrokerError
from exo.gateway.outages import Outages
from exo.gateway.ports import StateSource
from exo.gateway.relay import Keeper, Relay
from exo.gateway.settings import GatewaySettings
from exo.streams import subjects
from exo.streams.codes import Code
from exo.streams.events import InstanceRemoved, Recorded, TaskCancelled, TaskFailed, TaskFinished, TasksFailed
from exo.streams.ids import TaskId
from exo.streams.layout import TOKENS
from exo.streams.state import State
from exo.streams.tasks import EndedTask

log = structlog.get_logger(__name__)

TICK: Final = 0.5
REPAIRS_AT_ONCE: Final = 4
LONGEST_SILENCE: Final = 15.0
SETTLE_TRIES: Final = 8
LONGEST_PAUSE: Final = 2.56
FORGOTTEN_AFTER: Final = 5.0
UNREAD_AFTER: Final = 120.0
_BATCH: Final = 512

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class RelayHub:
    """All open relays of this gateway. `spawn` starts a task in the app's task group."""

    def __init__(
        self, bus: Bus, states: StateSource, *, outages: Outages, settings: GatewaySettings, spawn: Spawn
    ) -> None:
        self._bus = bus
        self._outages = outages
        self._states = states
        self._settings = settings
        self._spawn = spawn
        self._relays: dict[TaskId, list[Relay]] = {}
        self._repairs = asyncio.Semaphore(REPAIRS_AT_ONCE)
        self._newest_sequence = 0
        self._returns = 0
        self._stop_listening = states.on_event(self._on_event)
        outages.on_return(self._on_return)

    def __len__(self) -> int:
        """Count the open relays."""
        return sum(len(relays) for relays in self._relays.values())

    async def open(
        self,
        task: TaskId,
        *,
        cancels: bool,
        resumed: bool = False,
        keeper: Keeper | None = None,
    ) -> Relay:
        """Subscribe to a task's chunks from now on; a `resumed` one has chunks in the stream already.

        `keeper` is told how far the answer is, and can have it begun anew before there is output.
        """
        relay = Relay(task, on_gap=self._want_repair, keeper=keeper, cancels=cancels, resumed=resumed)
        relay.session = self._states.state.session
        relay.scanned_to = 0 if resumed else self._newest_sequence
        relay.subscription = await self._bus.subscribe(subjects.tokens_of_task(task), relay.receive)
        self._relays.setdefault(task, []).append(relay)
        return relay

    def close(self, relay: Relay) -> None:
        """Forget a relay and end its subscription; safe to call twice."""
        if relay.closed:
            return
        relay.closed = True
        siblings = self._relays.get(relay.task, [])
        siblings.remove(relay)
        if not siblings:
            del self._relays[relay.task]
        self._spawn(_stop(relay))

    def fail(self, task: TaskId, code: str, message: str) -> None:
        """End every relay of a task with an error, unless it has ended."""
        for relay in self._relays.get(task, ()):
            relay.fail(code, message)

    def waits_for(self, task: TaskId) -> bool:
        """Whether anybody still waits for a task."""
        return any(not relay.ended for relay in self._relays.get(task, ()))

    def expect(self, task: TaskId, *, attempt: int) -> None:
        """Take nothing more of the attempts of a task before this one."""
        for relay in self._relays.get(task, ()):
            relay.expect(attempt)

    async def repair(self, relay: Relay) -> None:
        """Read what the token stream holds of a task and was not read before.

        The server looks for a subject by walking over all messages, so the walk begins where the last one ended.
        """
        relay.repairing = True
        try:
            async with self._repairs:
                await self._read_missed(relay)
        except BrokerError as error:
            log.info("a stream cannot be repaired yet", task=relay.task, error=str(error))
        finally:
            relay.repairing = False

    async def _read_missed(self, relay: Relay) -> None:
        returns = self._returns
        newest = (await self._bus.stream_info(TOKENS.name)).last_sequence
        start = relay.scanned_to + 1
        while not relay.ended:
            batch = await self._bus.read(TOKENS.name, subjects.tokens_of_task(relay.task), start=start, limit=_BATCH)
            for message in batch:
                relay.feed(message.payload)
            if len(batch) < _BATCH:
                # Sequences of a connection that was lost meanwhile say nothing about the stream there is now.
                if returns == self._returns:
                    relay.scanned_to = self._newest_sequence = newest
                return
            start = batch[-1].sequence + 1

    async def run(self) -> None:
        """Look after all relays until cancelled."""
        try:
            while True:
                await asyncio.sleep(TICK)
                try:
                    self._tick(monotonic())
                except Exception:
                    log.exception("looking after the streams failed")
        finally:
            self._stop_listening()

    def _tick(self, now: float) -> None:
        state = self._states.state
        lost_at = self._outages.lost_at
        broker_lost = bool(lost_at) and now - lost_at > self._settings.broker_patience
        for relay in [relay for relays in self._relays.values() for relay in relays]:
            self._check_reader(relay, now)
            if relay.ended:
                continue
            if broker_lost:
                relay.fail(Code.BROKER_UNAVAILABLE, "The message broker was lost while the answer was made.")
            elif relay.repair_wanted or now - relay.last_arrival > relay.silence_allowed:
                relay.silence_allowed = min(2 * relay.silence_allowed, LONGEST_SILENCE)
                relay.last_arrival = now
                self._want_repair(relay)
                self._check_forgotten(relay, state, now)

    def _check_reader(self, relay: Relay, now: float) -> None:
        if relay.unread_since is not None and now - relay.unread_since > UNREAD_AFTER:
            log.warning("a stream that nobody came to read is closed", task=relay.task)
            self.close(relay)
            return
        stalled = relay.blocked_since and now - relay.blocked_since > self._settings.stall_timeout
        if stalled or relay.backlog > self._settings.stall_chunks:
            log.info("a client that does not read is cut off", task=relay.task, backlog=relay.backlog)
            relay.hang_up()
            if relay.cut is not None:
                relay.cut()
        elif now - relay.last_sent > self._settings.keep_alive:
            relay.wake()

    def _check_forgotten(self, relay: Relay, state: State, now: float) -> None:
        """Settle a task whose end was folded while no event was told, as after a new snapshot."""
        if relay.task in state.tasks or now - relay.opened_at < FORGOTTEN_AFTER:
            return
        # A new session may have lost it with the last events of the old one: its gateway brings it back.
        if state.ended_tasks.get(relay.task) is not None or not self._outages.settling:
            self._spawn(self._settle(relay))

    def _want_repair(self, relay: Relay) -> None:
        if not relay.repairing and not relay.ended and not relay.closed:
            relay.repair_wanted = False
            relay.repairing = True
            self._spawn(self._repair_gap(relay))
        else:
            relay.repair_wanted = True

    async def _repair_gap(self, relay: Relay) -> None:
        await self.repair(relay)
        # What is still missing is asked for again at the next tick, not in a tight loop.
        relay.repair_wanted |= relay.assembly.has_gap

    def _on_return(self) -> None:
        # The server may be a new one, whose token stream counts from 1 again.
        self._returns += 1
        self._newest_sequence = 0
        for relays in self._relays.values():
            for relay in relays:
                relay.scanned_to = 0
                self._want_repair(relay)

    def _on_event(self, recorded: Recorded, state: State) -> None:
        for task in self._tasks_of(recorded) if self._relays else ():
            relays = [relay for relay in self._relays.get(task, ()) if not relay.ended]
            if relays and state.ended_tasks.get(task) is not None:
                for relay in relays:
                    self._spawn(self._settle(relay))

    def _tasks_of(self, recorded: Recorded) -> Iterable[TaskId]:
        """Give the tasks that an event may have ended."""
        match recorded.envelope.event if recorded.envelope is not None else None:
            case TaskFinished(task=task) | TaskFailed(task=task) | TaskCancelled(task=task):
                return (task,)
            case TasksFailed(tasks=tasks):
                return tasks
            case InstanceRemoved():
                return tuple(self._relays)
            case _:
                return ()

    async def _settle(self, relay: Relay) -> None:
        """Bring a relay whose task has ended to its end: by the chunks if they can be had, else by an error."""
        if relay.settling:
            return
        relay.settling = True
        try:
            if await self._read_end(relay):
                self._conclude(relay, self._states.state.ended_tasks.get(relay.task))
        finally:
            relay.settling = False

    async def _read_end(self, relay: Relay) -> bool:
        """Look for the last chunks; gives whether they cannot be had and the relay still waits for them."""
        tries = 0
        while tries < SETTLE_TRIES or self._outages.settling:
            # The fact may overtake the last chunks: they are given a moment before they are asked for.
            await asyncio.sleep(min(0.02 * 2**tries, LONGEST_PAUSE))
            tries += 1
            await self._outages.connected.wait()
            # In a new session it may be at work again.
            if relay.ended or relay.closed or relay.task in self._states.state.tasks:
                return False
            await self.repair(relay)
            ended = self._states.state.ended_tasks.get(relay.task)
            has_all = ended is not None and relay.assembly.next_index > ended.last_index
            if ended is not None and ended.outcome != "finished" and (has_all or relay.is_lost):
                break
        return True

    def _conclude(self, relay: Relay, ended: EndedTask | None) -> None:
        keeper = None if relay.assembly.output_begun else relay.keeper
        if ended is not None and keeper is not None and keeper.begin_anew(ended):
            return
        if ended is None and relay.session != self._states.state.session:
            relay.fail(Code.CLUSTER_MERGED, "The hub was replaced, and nobody has gone on with this request.")
        elif ended is None:
            relay.fail(Code.INTERNAL, "The cluster no longer knows this request.")
        elif ended.outcome == "finished":
            relay.fail(Code.INTERNAL, "The end of this answer was lost on its way.")
        else:
            relay.fail(ended.code, ended.message)


async def _stop(relay: Relay) -> None:
    if relay.subscription is not None:
        await relay.subscription.stop()
