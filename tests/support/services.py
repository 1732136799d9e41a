"""Small values for tests of `exo.services`: one node, one model, one instance, and State that holds them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from exo.broker.bus import Bus
from exo.services.link import ClusterLink
from exo.services.node import NodeServices
from exo.services.settings import EngineSettings, NodeSettings
from exo.streams import commands as c
from exo.streams import subjects
from exo.streams.apply import apply
from exo.streams.chunks import TERMINAL, Chunk
from exo.streams.codec import decode_chunk, encode
from exo.streams.downloads import ModelReport
from exo.streams.events import (
    FACTS,
    Envelope,
    Event,
    InstancePlaced,
    ModelsReported,
    NodeJoined,
    Recorded,
    RunnerStatusChanged,
    TaskAssigned,
)
from exo.streams.ids import (
    BootId,
    CommandId,
    InstanceId,
    ModelId,
    NodeId,
    RunnerId,
    TaskId,
    new_command_id,
    new_instance_id,
    new_task_id,
)
from exo.streams.instances import Instance, Ready, Shard
from exo.streams.models import ModelCard
from exo.streams.nodes import NodeFacts
from exo.streams.requests import GenerationRequest, Message, ResumeRecord, StoredRequest, TextPart
from exo.streams.state import Receipt, State
from exo.streams.tasks import TaskRecord
from exo.streams.telemetry import MemoryGauge
from exo.streams.views import is_ready
from support.links import FixedLink, begin

T = TypeVar("T")
NODE, BOOT = NodeId("node-a"), BootId("boot-1")
NOW = 1_700_000_000_000
GB = 1_000_000_000
MODEL = ModelId("org/small")
SCRIPTED = ModelId("exo/scripted")


def make_card(model: str = MODEL, **changes: Any) -> ModelCard:
    """A model of 135 million weights, as dense float32 0.54 GB."""
    values: dict[str, Any] = {
        "model_id": ModelId(model),
        "architecture": "LlamaForCausalLM",
        "n_layers": 30,
        "hidden_size": 576,
        "attention_heads": 9,
        "key_value_heads": 3,
        "head_dim": 64,
        "context_length": 8192,
        "parameters": 135_000_000,
        "storage_bytes": 90_000_000,
        **changes,
    }
    return ModelCard(**values)


def make_facts(**changes: Any) -> NodeFacts:
    values: dict[str, Any] = {"name": "mac", "version": "1", "backends": ("MlxCpu",), **changes}
    return NodeFacts(**values)


def make_memory(available: float = 14, total: float = 16, process: float = 0) -> MemoryGauge:
    """A sample, in GB."""
    return MemoryGauge(total=round(total * GB), available=round(available * GB), process_bytes=round(process * GB))


def make_instance(name: str = "instance-1", *, card: ModelCard | None = None, node: NodeId = NODE) -> Instance:
    card = card or make_card()
    shard = Shard(
        runner=RunnerId(f"{name}-0"),
        node=node,
        rank=0,
        world_size=1,
        start_layer=0,
        end_layer=card.n_layers,
        n_layers=card.n_layers,
        memory_bytes=GB,
    )
    return Instance(
        id=InstanceId(name),
        model=card,
        sharding="Pipeline",
        transport="MlxRing",
        shards=(shard,),
        context_length=2048,
    )


def make_task(name: str = "task-1", **changes: Any) -> TaskRecord:
    values: dict[str, Any] = {
        "id": TaskId(name),
        "command": CommandId("command-1"),
        "model": MODEL,
        "instance": InstanceId("instance-1"),
        "node": NODE,
        "boot": BOOT,
        "gateway": NODE,
        "gateway_boot": BOOT,
        **changes,
    }
    return TaskRecord(**values)


def fold(state: State, *happened: Event, cause: CommandId | None = None, boot: BootId = BOOT) -> State:
    """Apply events as if they stood in the log; facts come from their own node."""
    for event in happened:
        actor = event.node if isinstance(event, FACTS) else NODE
        envelope = Envelope(id="id", at=NOW, actor=actor, boot=boot, epoch=1, cause=cause, event=event)
        state = apply(state, Recorded(state.applied + 1, envelope))
    return state


def joined_state(*, held: tuple[ModelCard, ...] = (), node: NodeId = NODE, state: State | None = None) -> State:
    """State with one more node online that holds these models."""
    reports = tuple(ModelReport(card=card, status="complete") for card in held)
    joined = NodeJoined(node=node, facts=make_facts())
    return fold(state or State(), joined, ModelsReported(node=node, models=reports))


def ready_state(*, tasks: tuple[TaskRecord, ...] = ()) -> State:
    """State with one ready instance of `MODEL` and these requests on it."""
    instance = make_instance()
    state = fold(joined_state(held=(make_card(),)), InstancePlaced(instance=instance))
    state = fold(state, RunnerStatusChanged(node=NODE, runner=instance.shards[0].runner, status=Ready()))
    return fold(state, *(TaskAssigned(task=task) for task in tasks))


def make_settings(directory: Path, **changes: Any) -> NodeSettings:
    values: dict[str, Any] = {
        "node": NODE,
        "boot": BOOT,
        "name": "mac",
        "version": "1",
        "model_directories": (directory / "models",),
        "data_directory": directory,
        **changes,
    }
    return NodeSettings(**values)


async def eventually(probe: Callable[[], Awaitable[T]], *, what: str) -> T:
    """Ask again and again until the answer is true, give it; fails after 10 s."""
    deadline = time.monotonic() + 10
    answer = await probe()
    while not answer:
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.005)
        answer = await probe()
    return answer


class Cluster:
    """The services of one node on a bus, with what a gateway would do on top."""

    def __init__(self, bus: Bus, settings: NodeSettings, *, link: ClusterLink | None = None) -> None:
        self.bus = bus
        self.settings = settings
        self.services = NodeServices(link or FixedLink(bus, settings.node), settings)

    async def start(self) -> None:
        """Begin a session, unless the broker has one, and bring the node up."""
        await begin(self.bus, self.services.projection)
        await self.services.start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.services.stop(grace=0)

    @property
    def state(self) -> State:
        return self.services.projection.state

    async def command(self, kind: Callable[..., c.Command], **fields: Any) -> Receipt:
        command = kind(command_id=new_command_id(), issued_at=self._now(), **fields)
        return await self.send(command)

    async def send(self, command: c.Command) -> Receipt:
        await self.bus.append(c.subject_of_command(command), encode(command))
        return await self.services.projection.answer(command.command_id, timeout=20)

    async def place(self, model: str = SCRIPTED) -> InstanceId:
        """Place a model and wait until it is ready."""
        instance = new_instance_id()
        receipt = await self.command(c.PlaceInstance, instance=instance, model=ModelId(model))
        assert receipt.outcome == "accepted", receipt
        await self.ready(instance)
        return instance

    async def ready(self, instance: InstanceId) -> None:
        await self.wait(lambda state: instance in state.instances and is_ready(state, instance))

    async def wait(self, predicate: Callable[[State], object], *, timeout: float = 30) -> State:
        return await self.services.projection.wait(lambda state: bool(predicate(state)), timeout=timeout)

    async def submit(
        self, text: str, *, model: str = SCRIPTED, max_tokens: int | None = None, late: bool = False, **fields: Any
    ) -> "Answer":
        """Ask a model; `text` is the user's message. A `late` body is stored after the task was assigned."""
        task = new_task_id()
        answer = Answer(task, model=ModelId(model))
        await self.bus.subscribe(subjects.tokens_of_task(task), lambda delivery: answer.take(delivery.payload))
        message = Message(role="user", content=(TextPart(text),))
        body = StoredRequest(
            task=task,
            request=GenerationRequest(model=ModelId(model), messages=(message,), max_tokens=max_tokens),
            resume=ResumeRecord(dialect="openai_chat", created=0, stream=True),
        )
        answer.body = encode(body)
        if not late:
            await self.bus.append(subjects.request(task), answer.body)
        answer.receipt = await self.command(
            c.SubmitTask,
            task=task,
            model=ModelId(model),
            size=1,
            gateway=self.settings.node,
            gateway_boot=self.settings.boot,
            **fields,
        )
        if late:
            await self.bus.append(subjects.request(task), answer.body)
        return answer

    async def resume(self, answer: "Answer", instance: InstanceId, *, admitted: bool = True) -> Receipt:
        """Submit a request again that State has lost, as a gateway does."""
        return await self.command(
            c.SubmitTask,
            task=answer.task,
            model=answer.model,
            size=1,
            gateway=self.settings.node,
            gateway_boot=self.settings.boot,
            resume_on=instance,
            admitted=admitted,
        )

    @staticmethod
    def _now() -> int:
        return time.time_ns() // 1_000_000


class Answer:
    """The chunks of one task as they arrive, repeats dropped."""

    def __init__(self, task: TaskId, *, model: ModelId) -> None:
        self.task = task
        self.model = model
        self.body = b""
        self.receipt: Receipt | None = None
        self.chunks: list[Chunk] = []
        self._arrived = asyncio.Event()

    def take(self, payload: bytes) -> None:
        chunk = decode_chunk(payload)
        if chunk.index == len(self.chunks):
            self.chunks.append(chunk)
            self._arrived.set()

    async def has(self, count: int) -> None:
        """Wait until so many chunks have come."""
        async with asyncio.timeout(30):
            while len(self.chunks) < count:
                self._arrived.clear()
                await self._arrived.wait()

    async def end(self) -> Chunk:
        """Wait for the terminal chunk."""
        async with asyncio.timeout(30):
            while not (self.chunks and isinstance(self.chunks[-1], TERMINAL)):
                self._arrived.clear()
                await self._arrived.wait()
        return self.chunks[-1]

    def text(self) -> str:
        return "".join(getattr(chunk, "text", "") for chunk in self.chunks)


def scripted(directory: Path, script: dict[str, float] | None = None, **changes: Any) -> NodeSettings:
    """Settings whose scripted engine behaves so."""
    return make_settings(directory, engine=EngineSettings(script=script or {}), **changes)
