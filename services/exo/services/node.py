"""All services of one node, composed: what `exo up` starts and stops.

Made before the cluster is joined, because its projection is what a new hub begins with. Start order:
follow the log, then listen to gauges, know the own models, be present; only then work and rule. Stop
order: the runners end while everything still works, then the last facts are written, then the lease is
given up, then following ends, then State goes to disk. No step waits long for a hub that is not there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from exo.broker.bus import Bus, Subscription
from exo.broker.errors import BrokerError
from exo.services.catalog.service import Catalog, load_catalog
from exo.services.clock import Clock, SystemClock
from exo.services.downloads.service import Models
from exo.services.journal import Journal
from exo.services.link import ClusterLink
from exo.services.links.prober import LinkProber
from exo.services.links.service import Links
from exo.services.links.thunderbolt import ThunderboltWatch
from exo.services.master.candidacy import Candidacy
from exo.services.master.reign import Reign
from exo.services.master.service import Master
from exo.services.membership import Membership
from exo.services.merge import Merger
from exo.services.placement.place import previews
from exo.services.projection import Projection
from exo.services.service import supervise
from exo.services.settings import NodeSettings
from exo.services.snapshots.file import StandbyFile
from exo.services.snapshots.service import Snapshots
from exo.services.telemetry.gauges import Gauges
from exo.services.telemetry.probes.machine import read_facts
from exo.services.telemetry.service import Telemetry
from exo.services.worker.service import Worker
from exo.streams import control, subjects
from exo.streams.codec import decode_as, encode
from exo.streams.commands import DrainNode, subject_of_command
from exo.streams.envelope import headers_of_fact
from exo.streams.ids import new_command_id, new_instance_id
from exo.streams.models import ModelCard
from exo.streams.placements import Preview
from exo.streams.state import State

log = structlog.get_logger(__name__)

START_TIMEOUT = 30.0
LEAVE_PATIENCE = 1.0
"""Seconds that the master gets to give this node nothing new."""

STEP_PATIENCE = 2.0
"""Seconds that each step of stopping gets, while the hub is connected: it may hang all the same."""


class NodeServices:
    """Made once per life of a node. The gateway uses `projection`, `gauges` and `catalog`."""

    def __init__(
        self,
        link: ClusterLink,
        settings: NodeSettings,
        *,
        clock: Clock | None = None,
        extra_processes: Callable[[], Iterable[int]] = tuple,
        prober: LinkProber | None = None,
    ) -> None:
        """`link` need not have found a hub yet.

        `extra_processes` gives the ids of further processes of this node (nats-server), for its memory gauge.

        `prober` measures the way to other nodes; without one there are none.
        """
        clock = clock or SystemClock()
        node, boot = settings.node, settings.boot
        bus = link.bus
        self._link = link
        self._bus = bus
        self._settings = settings
        self._clock = clock
        self.catalog: Catalog = load_catalog()
        self._standby = StandbyFile(settings.data_directory, cluster=settings.cluster, clock=clock)
        self.projection = Projection(bus, node=node, boot=boot, known=self._standby.read(), clock=clock)
        self.gauges = Gauges(bus, clock=clock)
        self._journal = Journal(bus, clock=clock, node=node, boot=boot)
        self.models = Models(
            bus,
            projection=self.projection,
            journal=self._journal,
            catalog=self.catalog,
            settings=settings,
            clock=clock,
        )
        self.worker = Worker(
            bus,
            projection=self.projection,
            journal=self._journal,
            models=self.models,
            settings=settings,
            clock=clock,
        )
        self._membership = Membership(
            bus,
            projection=self.projection,
            journal=self._journal,
            node=node,
            boot=boot,
            facts=read_facts(settings),
            runners=self.worker.reports,
            models=self.models.reports,
            clock=clock,
        )
        self._telemetry = Telemetry(
            bus,
            node=node,
            model_directories=(*settings.model_directories, *settings.read_only_directories),
            process_ids=lambda: [*self.worker.process_ids(), *extra_processes()],
            beats=self.worker.beats,
            clock=clock,
            memory_budget=settings.memory_budget,
            macmon=settings.macmon,
        )
        self._links = (
            Links(bus, prober=prober, projection=self.projection, journal=self._journal, node=node, clock=clock)
            if prober is not None
            else None
        )
        self._thunderbolt = ThunderboltWatch(
            node=node,
            journal=self._journal,
            known=lambda: self.projection.state.thunderbolt.get(node),
            board=self._telemetry.board,
            clock=clock,
        )
        self._merger = Merger(
            bus,
            projection=self.projection,
            journal=self._journal,
            node=node,
            clock=clock,
            has_ended=self.worker.has_ended,
        )
        self._candidacy = Candidacy(link, node=node, boot=boot, rule=self._rule, clock=clock)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        """Bring the node up; returns when State is current and the node has joined.

        `TimeoutError` when the broker does not let it; call `stop` then.
        """
        self._launch("projection", self.projection.run)
        self._launch("gauges", self.gauges.run)
        await self.models.refresh()
        await self.projection.caught_up(timeout=START_TIMEOUT)
        self._launch("journal", self._journal.run)
        await self._membership.join()
        # A command that is decided before the node counts as online would find no node to place on.
        await self.projection.wait(self._has_joined, timeout=START_TIMEOUT)
        self._launch("membership", self._membership.run)
        self._launch("telemetry", self._telemetry.run)
        self._launch("thunderbolt", self._thunderbolt.run)
        if self._links is not None:
            self._launch("links", self._links.run)
        self._launch("models", self.models.run)
        if self._settings.worker:
            self._launch("worker", self.worker.run)
        await self._answer_control()
        self._launch("merger", self._merger.run)
        self._launch("candidacy", self._candidacy.run)
        self._launch("standby", self._keep_standby)
        log.info("the node has started", node=self._settings.node, applied=self.projection.state.applied)

    async def begin_leaving(self) -> None:
        """Have the others give this node nothing new, if there are others and a master to ask; `stop` must follow."""
        state, own = self.projection.state, self._settings.node
        has_others = any(record.online for node, record in state.nodes.items() if node != own)
        if not (has_others and self._bus.connected) or own not in state.nodes or state.nodes[own].draining:
            return
        command = DrainNode(command_id=new_command_id(), issued_at=self._clock.now(), node=own, on=True)
        headers = headers_of_fact(command.command_id)
        try:
            async with asyncio.timeout(LEAVE_PATIENCE):
                await self._bus.append(subject_of_command(command), encode(command), headers=headers)
                await self.projection.wait(lambda state: state.nodes[own].draining)
        except (BrokerError, TimeoutError) as error:
            log.info("the others were not asked to give this node nothing new", reason=str(error) or "no answer")

    async def stop(self, *, grace: float = 0) -> None:
        """Take the node down in good order; requests may run for `grace` more seconds."""
        await self._end("telemetry", "thunderbolt", "links", "models", "merger", "standby")
        await self._step("runners", self.worker.stop(grace=grace), patience=grace + 2 * STEP_PATIENCE)
        await self._end("worker", "membership")
        await self._step("farewell", self._leave())
        await self._end("candidacy")
        ends = [subscription.stop() for subscription in self._subscriptions]
        await self._step("control", asyncio.gather(*ends, return_exceptions=True))
        await self._end("journal", "gauges", "projection")
        await self._standby.write(self.projection.state)
        log.info("the node has stopped", node=self._settings.node)

    def previews(self, card: ModelCard, *, min_nodes: int = 1) -> list[Preview]:
        """Give every way to place a model now, and a refusal for each way that is closed; the gateway asks."""
        return previews(
            card,
            state=self.projection.state,
            memory=self.gauges.memory(),
            draw_id=new_instance_id,
            min_nodes=min_nodes,
            now=self._clock.now(),
        )

    def _has_joined(self, state: State) -> bool:
        record = state.nodes.get(self._settings.node)
        return record is not None and record.online and record.boot == self._settings.boot

    async def _keep_standby(self) -> None:
        await self._standby.run(self.projection)

    async def _rule(self, bus: Bus) -> None:
        """Be master until deposed; `bus` belongs to one hub."""
        reign = Reign(
            bus,
            self.projection,
            clock=self._clock,
            node=self._settings.node,
            boot=self._settings.boot,
        )
        await reign.begin()
        master = Master(
            bus,
            reign,
            link=self._link,
            projection=self.projection,
            gauges=self.gauges,
            catalog=self.catalog,
            clock=self._clock,
            duties=(Snapshots(bus, projection=self.projection).run,),
        )
        await master.run()

    async def _leave(self) -> None:
        if "journal" in self._tasks and self._bus.connected:
            await self._membership.leave()
            await self._journal.drain(timeout=STEP_PATIENCE)

    async def _answer_control(self) -> None:
        async def count(payload: bytes) -> bytes:
            return encode(await self.worker.count_tokens(decode_as(control.CountTokensOf, payload)))

        async def add(payload: bytes) -> bytes:
            return encode(await self.models.import_model(decode_as(control.ImportModel, payload)))

        async def remove(payload: bytes) -> bytes:
            return encode(await self.models.remove_model(decode_as(control.RemoveModel, payload)))

        handlers = {control.COUNT_TOKENS: count, control.IMPORT_MODEL: add, control.REMOVE_MODEL: remove}
        for verb, handler in handlers.items():
            subject = subjects.control(self._settings.node, verb)
            self._subscriptions.append(await self._bus.respond(subject, handler))

    def _launch(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self._tasks[name] = asyncio.create_task(supervise(name, run, clock=self._clock), name=name)

    async def _end(self, *names: str) -> None:
        tasks = [self._tasks.pop(name) for name in names if name in self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=STEP_PATIENCE)
            for task in late:
                log.warning("a service is slow to end", service=task.get_name())

    async def _step(self, name: str, work: Awaitable[object], *, patience: float = STEP_PATIENCE) -> None:
        """Do one step of stopping; one that fails must not keep the next ones from being done."""
        try:
            async with asyncio.timeout(patience):
                await work
        except (BrokerError, TimeoutError) as error:
            log.warning("a step of stopping failed", step=name, error=str(error) or type(error).__name__)
