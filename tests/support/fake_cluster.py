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
from exo.gateway.app import create_app
from exo.gateway.settings import GatewayPorts, GatewaySettings, NodeIdentity
from exo.services.catalog.service import Catalog
from exo.services.master.decide import Circumstances, decide
from exo.services.projection import Projection
from exo.services.telemetry.gauges import Reading
from exo.streams import commands as c
from exo.streams import events as e
from exo.streams import subjects
from exo.streams.chunks import Admitted, Chunk, Done, Text, Usage
from exo.streams.codec import decode_command, decode_stored_request, encode
from exo.streams.codes import Code
from exo.streams.downloads import ModelReport
from exo.streams.ids import BootId, CommandId, InstanceId, ModelId, NodeId, RunnerId, SessionId, TaskId
from exo.streams.instances import Instance, Loading, Ready, RunnerStatus, Shard
from exo.streams.layout import COMMANDS, REQUESTS
from exo.streams.models import ModelCard
from exo.streams.nodes import NodeFacts
from exo.streams.placements import Preview, Unplaceable
from exo.streams.requests import GenerationRequest
from exo.streams.tasks import TaskRecord
from exo.streams.telemetry import MemoryGauge, Sample
from exo.streams.views import instances_of, least_busy_instance

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
        self.loading: asyncio.Event | None = None
        """When set, a placed instance stays in loading until this event."""
        self._running = running
        self._group: asyncio.TaskGroup | None = None
        self._events = 0
        self._answers: dict[TaskId, asyncio.Task[None]] = {}
        self._placing: list[asyncio.Task[None]] = []

    # The ports that services fulfil.

    @property
    def hub(self) -> NodeId:
        return NODE

    def report(self) -> ClusterReport:
        return ClusterReport(hub=NODE, why="it was the first one here")

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
        """Write an event to the log."""
        self._events += 1
        envelope = e.Envelope(
            id=f"event-{self._events}",
            at=time_ns() // 1_000_000,
            actor=NODE,
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

    async def change_runner(self, instance: Instance, status: RunnerStatus) -> None:
        await self.record(e.RunnerStatusChanged(node=NODE, runner=instance.shards[0].runner, status=status))

    async def _decide(self, command: c.Command) -> None:
        self.commands.append(command)
        cause = command.command_id
        match command:
            case c.SubmitTask(model=model):
                instance = least_busy_instance(self.states.state, model)
                if instance is None:
                    refusal = e.CommandRejected(command=cause, code=Code.MODEL_NOT_RUNNING, reason="not running")
                    await self.record(refusal, cause=cause)
                else:
                    await self._assign(command, instance)
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

    async def _assign(self, command: c.SubmitTask, instance: Instance) -> None:
        record = TaskRecord(
            id=command.task,
            command=command.command_id,
            model=command.model,
            instance=instance.id,
            node=NODE,
            boot=BOOT,
            gateway=command.gateway,
            gateway_boot=command.gateway_boot,
            key=command.key,
            on_disconnect=command.on_disconnect,
        )
        await self.record(e.TaskAssigned(task=record), cause=command.command_id)
        assert self._group is not None
        self._answers[command.task] = self._group.create_task(self._answer(command.task))

    async def _run_master(self) -> None:
        async for item in self.bus.work(COMMANDS.name, name="master"):
            if self.answering:
                await self._decide(decode_command(item.message.payload))
            await item.ack()

    # The worker.

    async def publish(self, task: TaskId, chunk: Chunk) -> None:
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
        ports = GatewayPorts(states=self.states, gauges=self, placer=self, catalog=self.catalog, cluster=self)
        node = NodeIdentity(id=NODE, boot=BOOT, name="test", version="0.0.1")
        return create_app(self.gateway_bus, ports, node=node, settings=GatewaySettings(**settings))
