"""A cluster of one on a `MemoryBus`: plays master and worker, so that the gateway can be tested alone.

The projection is the real one. What a model answers is a script: a list of pieces, each sent as soon
as the one before it is out, with a pause wherever an `asyncio.Event` stands.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from time import time_ns
from typing import Any

import msgspec

from exo.broker.blobs import Blobs
from exo.broker.memory import MemoryBus
from exo.broker.memory_server import MemoryServer
from exo.gateway.app import create_app
from exo.gateway.ports import Rekeyed
from exo.gateway.settings import GatewayPorts, GatewaySettings, NodeIdentity
from exo.services.catalog.service import Catalog
from exo.services.clock import SystemClock
from exo.services.master.decide import Circumstances, decide
from exo.services.projection import Projection
from exo.services.standby import begin_session
from exo.services.telemetry.gauges import Reading
from exo.streams import commands as c
from exo.streams import events as e
from exo.streams import subjects
from exo.streams.apply import apply
from exo.streams.chunks import Admitted, Chunk, Done, Text, Usage
from exo.streams.codec import decode_command, decode_event, decode_stored_request, encode
from exo.streams.codes import Code
from exo.streams.downloads import ModelReport
from exo.streams.ids import BootId, CommandId, InstanceId, ModelId, NodeId, RunnerId, SessionId, TaskId
from exo.streams.instances import Instance, Loading, Ready, RunnerStatus, Shard
from exo.streams.layout import COMMANDS, EVENTS, REQUESTS
from exo.streams.models import ModelCard
from exo.streams.nodes import NodeFacts
from exo.streams.placements import Preview, Unplaceable
from exo.streams.requests import GenerationRequest
from exo.streams.state import State
from exo.streams.telemetry import MemoryGauge, Sample
from exo.streams.views import instances_of

NODE = NodeId("node-1")
BOOT = BootId("boot-1")
MODEL = ModelId("org/model")
OTHER = ModelId("org/other")

Piece = Chunk | asyncio.Event
Script = Callable[[GenerationRequest], Sequence[Piece]]


def say(*words: str, prompt_tokens: int = 5) -> list[Piece]:
    """A plain answer, one chunk per word."""
    texts = [Text(1, number, word) for number, word in enumerate(words, start=1)]
    usage = Usage(prompt=prompt_tokens, completion=len(words))
    return [Admitted(1, 0, prompt_tokens), *texts, Done(1, len(words) + 1, "stop", usage)]


def always(pieces: Sequence[Piece]) -> Script:
    """A script that answers every request alike."""

    def script(_request: GenerationRequest) -> Sequence[Piece]:
        return pieces

    return script


def say_hello(_request: GenerationRequest) -> Sequence[Piece]:
    return say("Hello", " world")


def card_of(model: ModelId, **more: Any) -> ModelCard:
    return ModelCard(model_id=model, name=model.partition("/")[2], storage_bytes=1_000_000, n_layers=4, **more)


def instance_of(model: ModelId, *, identifier: str = "instance-1") -> Instance:
    shard = Shard(
        runner=RunnerId(f"runner-{identifier}"),
        node=NODE,
        rank=0,
        world_size=1,
        start_layer=0,
        end_layer=4,
        n_layers=4,
        memory_bytes=2_000_000,
    )
    return Instance(
        id=InstanceId(identifier),
        model=card_of(model),
        sharding="Pipeline",
        transport="MlxRing",
        shards=(shard,),
        context_length=4096,
    )


class ClusterReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report as a cluster gives one: the gateway passes on whatever struct it is."""

    hub: NodeId
    why: str


class FakeCluster:
    """Knows `org/model` and `org/other`; the models in `running` are placed and ready from the start."""

    def __init__(self, *, script: Script | None = None, running: Sequence[ModelId] = (MODEL,)) -> None:
        self.bus = MemoryBus()
        self.gateway_bus = MemoryBus(self.bus.server)
        """The gateway's own connection: tests cut it without hurting the rest."""
        self.states = Projection(self.bus)
        self.script = script or say_hello
        self.catalog = Catalog((card_of(MODEL), card_of(OTHER)), aliases={"starter": MODEL})
        self.cancelled: set[TaskId] = set()
        self.commands: list[c.Command] = []
        self.answering = True
        self.full = ""
        """Why the broker's store takes nothing new."""
        self.cancelled_here: list[TaskId] = []
        """What the gateway dropped by itself, without a master."""
        self.loading: asyncio.Event | None = None
        """When set, a placed instance stays in loading until this event."""
        self._running = running
        self._group: asyncio.TaskGroup | None = None
        self._events = 0
        self._answers: dict[TaskId, asyncio.Task[None]] = {}
        self._hub_is_there = asyncio.Event()
        self._hub_is_there.set()
        self._begun: set[tuple[TaskId, int]] = set()
        self._published: list[tuple[TaskId, Chunk]] = []
        self._placing: list[asyncio.Task[None]] = []

    # The ports that services fulfil.

    @property
    def hub(self) -> NodeId:
        return NODE

    def report(self) -> ClusterReport:
        return ClusterReport(hub=NODE, why="it was the first one here")

    async def rekey(self) -> Rekeyed:
        return Rekeyed(closed=True, origin="/box/cluster.secret")

    def explain(self) -> str:
        return "node test was hub and is being replaced"

    def explain_full(self) -> str:
        return self.full

    async def cancel_task(self, task: TaskId, *, reason: str) -> bool:
        assert reason
        self.cancelled_here.append(task)
        return True

    def samples(self) -> list[Reading]:
        gauge = MemoryGauge(total=16_000_000, available=8_000_000)
        sample = Sample(taken_at=time_ns() // 1_000_000, interval=1.0, gauge=gauge)
        return [Reading(node=NODE, name="memory", sample=sample, received=0)]

    def age(self, reading: Reading) -> float:
        return 0.25

    def previews(self, card: ModelCard, *, min_nodes: int = 1) -> list[Preview]:
        if min_nodes > 1:
            refusal = Unplaceable(code=Code.UNPLACEABLE, reason="there is only one node")
            return [Preview(sharding="Pipeline", transport="MlxRing", nodes=min_nodes, unplaceable=refusal)]
        instance = instance_of(card.model_id, identifier="previewed")
        tensor = Unplaceable(code=Code.UNPLACEABLE, reason="the model has no tensor sharding")
        return [
            Preview(
                sharding="Pipeline", transport="MlxRing", nodes=1, instance=instance, memory_by_node={NODE: 2_000_000}
            ),
            Preview(sharding="Tensor", transport="MlxRing", nodes=1, unplaceable=tensor),
        ]

    # The master.

    async def record(self, event: e.Event, *, cause: CommandId | None = None) -> None:
        """Write an event to the log, as soon as there is one."""
        self._events += 1
        await self._hub_is_there.wait()
        envelope = e.Envelope(
            id=f"event-{self._events}",
            at=time_ns() // 1_000_000,
            actor=event.node if isinstance(event, e.FACTS) else NODE,
            boot=BOOT,
            epoch=0 if isinstance(event, e.FACTS) else 1,
            cause=cause,
            event=event,
        )
        await self.bus.append(e.subject_of_event(event), encode(envelope))

    async def place(self, instance: Instance, *, cause: CommandId | None = None) -> None:
        """Place an instance and let it load and become ready."""
        await self.record(e.InstancePlaced(instance=instance), cause=cause)
        if self.loading is not None:
            await self.change_runner(instance, Loading(layers_loaded=1, total_layers=4))
            await self.loading.wait()
        await self.change_runner(instance, Ready())

    async def place_unseen(self) -> None:
        """Place an instance of the model beside what is placed, under an id of its own."""
        await self.place(instance_of(MODEL, identifier="unseen"))

    async def change_runner(self, instance: Instance, status: RunnerStatus) -> None:
        await self.record(e.RunnerStatusChanged(node=NODE, runner=instance.shards[0].runner, status=status))

    async def _decide(self, command: c.Command) -> None:
        self.commands.append(command)
        cause = command.command_id
        match command:
            case c.SubmitTask():
                await self._submit(command)
            case c.CancelTask(task=task, reason=reason):
                self.cancelled.add(task)
                await self.record(e.TaskCancelled(task=task, reason=reason), cause=cause)
                if task in self._answers:
                    self._answers[task].cancel()
            case c.PlaceInstance(model=model, only_if_absent=True) if found := instances_of(self.states.state, model):
                await self.record(e.CommandAnswered(command=cause, instance=found[0].id), cause=cause)
            case c.PlaceInstance(model=model, instance=identifier):
                instance = instance_of(model, identifier=identifier)
                assert self._group is not None
                self._placing.append(self._group.create_task(self.place(instance, cause=cause)))
            case c.CreateInstance(instance=instance):
                await self.place(instance, cause=cause)
            case c.DeleteInstance(instance=identifier, reason=reason):
                removed = e.InstanceRemoved(instance=identifier, code=Code.INSTANCE_REMOVED, reason=reason)
                await self.record(removed, cause=cause)
            case c.AddModelCard(card=card):
                await self.record(e.ModelCardAdded(card=card), cause=cause)
            case c.DeleteModelCard(model=model):
                await self.record(e.ModelCardDeleted(model=model), cause=cause)
            case c.AddApiKey() | c.RevokeApiKey() | c.DrainNode():
                await self.record(decide(command, Circumstances(self.states.state, {}, self.catalog, 0)), cause=cause)

    async def _submit(self, command: c.SubmitTask) -> None:
        given = Circumstances(self.states.state, {}, self.catalog, command.issued_at)
        decision = decide(command, given)
        await self.record(decision, cause=command.command_id)
        if not isinstance(decision, e.TaskAssigned):
            return
        attempt = (command.task, decision.task.attempt)
        if attempt not in self._begun and not decision.task.resumed:
            self._begun.add(attempt)
            assert self._group is not None
            if command.task in self._answers:
                self._answers[command.task].cancel()
            self._answers[command.task] = self._group.create_task(self._answer(command.task))

    async def _run_master(self) -> None:
        async for item in self.bus.work(COMMANDS.name, name="master"):
            command = decode_command(item.message.payload)
            if self.answering and self.states.state.receipts.get(command.command_id) is None:
                await self._decide(command)
            await item.ack()

    # The hub.

    def lose_hub(self) -> None:
        """Cut everybody off."""
        self._hub_is_there.clear()
        for bus in (self.bus, self.gateway_bus):
            bus.disconnect()

    async def find_hub(self, *, lost: int = 0) -> None:
        """Begin a session on an empty server, whose hub had not seen the last `lost` events; then all find it.

        The worker publishes the chunks that it has made once more.
        """
        log = self.bus.server.stream(EVENTS.name).messages
        state = State()
        for message in log[: len(log) - lost]:
            state = apply(state, decode_event(message.payload, sequence=message.sequence))
        server = MemoryServer()
        server.stream(EVENTS.name).last_sequence = state.applied
        session = SessionId(f"s{state.epoch + 1}")
        await begin_session(MemoryBus(server), state, session=session, node=NODE, boot=BOOT, clock=SystemClock())
        for bus in (self.bus, self.gateway_bus):
            bus.move(server)
            bus.reconnect()
        self._hub_is_there.set()
        made, self._published = self._published, []
        for task, chunk in made:
            await self.publish(task, chunk)

    # The worker.

    async def publish(self, task: TaskId, chunk: Chunk) -> None:
        self._published.append((task, chunk))
        await self.bus.publish(subjects.tokens(NODE, task), encode(chunk))

    async def _answer(self, task: TaskId) -> None:
        message = await self.bus.get_last(REQUESTS.name, subjects.request(task))
        if message is None:
            # Its body could not be stored: the gateway cancels it.
            return
        stored = decode_stored_request(message.payload)
        if stored.blob:
            stored = decode_stored_request(await Blobs(self.bus).get(stored.blob))
        for piece in self.script(stored.request):
            if isinstance(piece, asyncio.Event):
                await piece.wait()
                continue
            await self.publish(task, piece)
            await asyncio.sleep(0)
            if isinstance(piece, Done):
                finished = e.TaskFinished(
                    node=NODE, task=task, last_index=piece.index, reason=piece.reason, usage=piece.usage
                )
                await self.record(finished)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["FakeCluster"]:
        """Run master, worker and projection."""
        report = ModelReport(card=card_of(MODEL), status="complete", size_bytes=1_000_000, total_bytes=1_000_000)
        facts = NodeFacts(name="test", version="0", memory_total=16_000_000)
        await self.record(e.EpochStarted(session=SessionId("s1"), epoch=1, base=0, state_hash="", master=NODE))
        await self.record(e.NodeJoined(node=NODE, facts=facts))
        await self.record(e.ModelsReported(node=NODE, models=(report,)))
        for number, model in enumerate(self._running, start=1):
            await self.place(instance_of(model, identifier=f"instance-{number}"))
        async with asyncio.TaskGroup() as group:
            self._group = group
            keepers = [group.create_task(self.states.run()), group.create_task(self._run_master())]
            await self.states.caught_up(timeout=5)
            try:
                yield self
            finally:
                for task in (*keepers, *self._answers.values(), *self._placing):
                    task.cancel()

    def app(self, **settings: Any) -> Any:
        """Give an app in front of this cluster."""
        ports = GatewayPorts(
            states=self.states, gauges=self, placer=self, catalog=self.catalog, cluster=self, local=self
        )
        node = NodeIdentity(id=NODE, boot=BOOT, name="test", version="0.0.1")
        return create_app(self.gateway_bus, ports, node=node, settings=GatewaySettings(**settings))
