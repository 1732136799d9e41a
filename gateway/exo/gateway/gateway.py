"""The gateway of one node: its parts, wired together, and their common lifetime.

`create_app` makes one and hands it to every route. All tasks that outlive a request - repairs,
cancellations, clean-up - run in the task group of `running`.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import structlog
from litestar.di import NamedDependency

from exo.broker.bus import Bus
from exo.gateway.answers import Courier
from exo.gateway.cancelling import Canceller
from exo.gateway.commands import Commander
from exo.gateway.hub import RelayHub
from exo.gateway.metrics import ClusterCollector, Metrics
from exo.gateway.outages import Outages
from exo.gateway.request_store import RequestStore
from exo.gateway.responses import EventStreams
from exo.gateway.settings import GatewayPorts, GatewaySettings, NodeIdentity
from exo.gateway.submissions import Submissions
from exo.gateway.submit import Submitter
from exo.streams.state import State

log = structlog.get_logger(__name__)

STOP_PATIENCE = 2.0
"""Seconds that cancellations and clean-up get when the gateway stops."""


class Gateway:
    """Everything a route may need."""

    def __init__(self, bus: Bus, ports: GatewayPorts, *, node: NodeIdentity, settings: GatewaySettings) -> None:
        self.bus = bus
        self.states = ports.states
        self.gauges = ports.gauges
        self.placer = ports.placer
        self.catalog = ports.catalog
        self.cluster = ports.cluster
        self.node = node
        self.settings = settings
        self.metrics = Metrics()
        self.outages = Outages(bus, self.states, explain=self.cluster.explain, explain_full=self.cluster.explain_full)
        self.commander = Commander(bus, self.states, outages=self.outages, timeout=settings.command_timeout)
        self.hub = RelayHub(bus, self.states, outages=self.outages, settings=settings, spawn=self.spawn)
        self.canceller = Canceller(
            self.commander,
            self.states,
            outages=self.outages,
            local=ports.local,
            spawn=self.spawn,
            timeout=settings.command_timeout,
        )
        requests = RequestStore(bus)
        self.submissions = Submissions(
            requests, self.states, commander=self.commander, outages=self.outages, hub=self.hub, spawn=self.spawn
        )
        self.submitter = Submitter(
            requests,
            self.states,
            node=node,
            settings=settings,
            catalog=self.catalog,
            commander=self.commander,
            outages=self.outages,
            hub=self.hub,
            submissions=self.submissions,
            canceller=self.canceller,
            spawn=self.spawn,
        )
        self.courier = Courier(self.canceller, self.hub, metrics=self.metrics, keep_alive=settings.keep_alive)
        self.event_streams = EventStreams(keep_alive=settings.keep_alive, stall_timeout=settings.stall_timeout)
        self.onboarded = False
        self._group: asyncio.TaskGroup | None = None
        self._spawned: set[asyncio.Task[None]] = set()
        self.metrics.registry.register(
            ClusterCollector(
                state=lambda: self.states.state, relays=lambda: len(self.hub), connected=lambda: bus.connected
            )
        )

    @property
    def state(self) -> State:
        """The newest State this node knows."""
        return self.states.state

    def begin_leaving(self) -> None:
        """Begin no lost request anew: this node is about to stop, and another answers it sooner."""
        self.submissions.renews = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the requests; what it raises is logged and hurts nobody else."""
        if self._group is None:
            work.close()
            log.warning("work that came after the gateway had stopped is dropped")
            return
        task = self._group.create_task(_guard(work))
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the gateway's own tasks; on leaving, what is under way gets `STOP_PATIENCE` to finish."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            keepers = [group.create_task(one.run()) for one in (self.hub, self.commander, self.submissions)]
            try:
                yield
            finally:
                self._group = None
                for keeper in keepers:
                    keeper.cancel()
                self.canceller.stop()
                self.outages.stop()
                if self._spawned:
                    await asyncio.wait(self._spawned, timeout=STOP_PATIENCE)
                for task in self._spawned:
                    task.cancel()


Here: TypeAlias = NamedDependency[Gateway]
"""How a route asks for the gateway of the node it runs on."""


async def _guard(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        log.exception("work beside a request failed")
