"""The master's loops: commands in, decisions out, and the sweep beside them.

Runs on every node and rules on one: whoever holds the lease. What is decided is decided by the pure
`decide` and `sweep`; here it is written, fenced, folded and acknowledged, in this order.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress

import structlog

from exo.broker.bus import Bus, WorkItem
from exo.broker.errors import BusUnavailableError
from exo.services.catalog.service import Catalog
from exo.services.clock import Clock
from exo.services.link import ClusterLink
from exo.services.master.decide import Circumstances, decide, reject
from exo.services.master.inbox import Garbage, read_command
from exo.services.master.presence import PresenceWatch
from exo.services.master.reign import DeposedError, Reign
from exo.services.master.sweep import sweep
from exo.services.master.waiting import QueueClock, TaskAges
from exo.services.projection import Projection
from exo.services.telemetry.gauges import Gauges
from exo.streams.codes import Code
from exo.streams.commands import Command, CreateInstance, PlaceInstance
from exo.streams.events import (
    CommandRejected,
    Decision,
    InstancePlaced,
    NodeJoined,
    NodeLeft,
    Recorded,
    RunnerStatusChanged,
)
from exo.streams.ids import NodeId
from exo.streams.instances import Failed, Instance
from exo.streams.layout import COMMANDS
from exo.streams.state import State
from exo.streams.views import online_workers

log = structlog.get_logger(__name__)

CONSUMER = "master"
SWEEP_INTERVAL = 2.0
"""Seconds; what is urgent (a node that joined or left, a runner that gave up) is swept at once."""
_URGENT_INTERVAL = 0.5
"""Seconds, while a node that is gone still counts as online: streams wait for the end of that."""
_LATELY = 3.0
"""Seconds in which every node that is reached sends its gauges."""
_GAUGES_TIMEOUT = 3.0
"""Seconds after the start of a reign for which placement waits for memory samples."""


class Master:
    """Decides during one reign."""

    def __init__(
        self,
        bus: Bus,
        reign: Reign,
        *,
        link: ClusterLink,
        projection: Projection,
        gauges: Gauges,
        catalog: Catalog,
        clock: Clock,
        duties: tuple[Callable[[Reign], Coroutine[None, None, None]], ...] = (),
    ) -> None:
        """`duties` are further loops that run for as long as this master rules."""
        self._bus = bus
        self._reign = reign
        self._link = link
        self._projection = projection
        self._gauges = gauges
        self._catalog = catalog
        self._clock = clock
        self._duties = duties
        self._presence = PresenceWatch(bus, clock=clock)
        self._queue_clock = QueueClock(bus, clock=clock)
        self._ages = TaskAges(clock=clock)
        self._sweep_is_due = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled.

        `DeposedError` when another master has taken over, `BusUnavailableError` when the connection is closed.
        """
        stop_listening = self._projection.on_event(self._notice)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._take_commands())
                group.create_task(self._sweep_for_ever())
                group.create_task(self._tick())
                for duty in self._duties:
                    group.create_task(duty(self._reign))
        except ExceptionGroup as errors:
            deposed = errors.subgroup(DeposedError)
            if deposed is not None:
                raise DeposedError(str(deposed.exceptions[0])) from errors
            _, others = errors.split(BusUnavailableError)
            if others is None:
                raise BusUnavailableError(f"the hub of this reign is gone: {errors.exceptions[0]}") from errors
            raise
        finally:
            stop_listening()

    async def _take_commands(self) -> None:
        async for item in self._bus.work(COMMANDS.name, name=CONSUMER, ack_wait=5, max_deliver=5):
            await self._answer(item)

    async def _answer(self, item: WorkItem) -> None:
        read = read_command(item.message.payload)
        if isinstance(read, Garbage):
            log.warning("a command cannot be read", subject=item.message.subject, reason=read.reason)
            with suppress(BusUnavailableError):
                await item.term(read.reason)
            return
        if isinstance(read, PlaceInstance | CreateInstance):
            await self._wait_for_gauges()
        async with self._reign.turn() as state:
            is_known = isinstance(read, CommandRejected)
            age = 0 if is_known else await self._queue_clock.age(item.message, suspect=read.ttl / 1000)
            await self._decide(read, state, age=age)
        # Without the acknowledgement it comes again, and its receipt is found.
        with suppress(BusUnavailableError):
            await item.ack()

    async def _decide(self, read: Command | CommandRejected, state: State, *, age: float) -> None:
        identifier = read.command if isinstance(read, CommandRejected) else read.command_id
        if state.receipts.get(identifier) is not None:
            log.debug("a command came twice", command=identifier)
            return
        decision = read if isinstance(read, CommandRejected) else self._judge(read, state, age=age)
        if isinstance(decision, CommandRejected):
            # A client that hangs up as its answer ends is no news: its cancellation comes too late.
            say = log.debug if decision.code == Code.TASK_NOT_FOUND else log.info
            say("a command was rejected", code=decision.code, reason=decision.reason, command=identifier)
        if isinstance(decision, InstancePlaced):
            _log_placement(decision.instance)
        await self._reign.write(decision, cause=identifier)

    def _judge(self, command: Command, state: State, *, age: float) -> Decision:
        given = Circumstances(
            state, self._gauges.memory(), self._catalog, self._clock.now(), round(age * 1000), self._find_unheard(state)
        )
        try:
            return decide(command, given)
        except Exception:
            log.exception("a command could not be decided", command=command.command_id)
            reason = "exo made a mistake in deciding this; the master's log has the traceback"
            return reject(command.command_id, Code.INTERNAL, reason)

    def _find_unheard(self, state: State) -> frozenset[NodeId]:
        """Give the nodes that may be gone: that they are offline is decided only after a while."""
        unheard = self._presence.missing | self._link.unreached() | self._link.gone().keys()
        if self._clock.monotonic() - self._reign.began < _LATELY:
            return unheard
        online = frozenset(node.id for node in state.nodes.values() if node.online)
        return unheard | (online - self._gauges.heard(within=_LATELY))

    def _find_gone(self) -> dict[NodeId, float]:
        """Give the nodes that are gone for certain: one that is heard on the bus is not, whatever refuses."""
        heard = self._gauges.heard(within=_LATELY)
        return {node: seconds for node, seconds in self._link.gone().items() if node not in heard}

    def _is_anyone_gone(self) -> bool:
        nodes = self._reign.state.nodes
        return any(node in nodes and nodes[node].online for node in self._link.gone())

    async def _wait_for_gauges(self) -> None:
        workers = [node.id for node in online_workers(self._reign.state)]
        left = self._reign.began + _GAUGES_TIMEOUT - self._clock.monotonic()
        if left > 0:
            await self._gauges.wait_for_memory(workers, timeout=left)

    async def _sweep_for_ever(self) -> None:
        while True:
            await self._sweep_is_due.wait()
            self._sweep_is_due.clear()
            try:
                absent = await self._presence.look(self._reign.state)
            except BusUnavailableError:
                self._presence.forget()
                continue
            await self._sweep(absent)

    async def _sweep(self, absent: dict[NodeId, float]) -> None:
        while True:
            async with self._reign.turn() as state:
                ages = self._ages.look(state)
                decision = next(sweep(state, absent=absent, gone=self._find_gone(), ages=ages), None)
                if decision is None:
                    return
                log.info("the sweep decided", decision=type(decision).__name__)
                await self._reign.write(decision)

    async def _tick(self) -> None:
        while True:
            self._sweep_is_due.set()
            await self._clock.sleep(_URGENT_INTERVAL if self._is_anyone_gone() else SWEEP_INTERVAL)

    def _notice(self, recorded: Recorded, _state: State) -> None:
        event = recorded.envelope.event if recorded.envelope else None
        failed = isinstance(event, RunnerStatusChanged) and isinstance(event.status, Failed)
        if failed or isinstance(event, NodeJoined | NodeLeft):
            self._sweep_is_due.set()


def _log_placement(instance: Instance) -> None:
    log.info(
        "an instance is placed",
        model=instance.model.model_id,
        nodes=[shard.node for shard in instance.shards],
        memory_bytes=sum(shard.memory_bytes for shard in instance.shards),
        context_length=instance.context_length,
        model_context_length=instance.model.context_length,
    )
