"""Requests and start frames as tests want them: one line each."""

from typing import Any

from exo.runners.engines.engine import Prompt
from exo.streams.ids import InstanceId, ModelId, NodeId, RunnerId, TaskId
from exo.streams.instances import Instance, Shard
from exo.streams.models import ModelCard
from exo.streams.pipe import EngineOptions, Generate, Start
from exo.streams.requests import GenerationRequest, Message, Role, TextPart, Tool

MODEL = ModelId("exo/scripted")
WEATHER = Tool(name="weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})


def message(text: str, *, role: Role = "user", **fields: Any) -> Message:
    return Message(role=role, content=(TextPart(text),), **fields)


def ask(text: str, **fields: Any) -> GenerationRequest:
    """A request of one user message."""
    return GenerationRequest(model=MODEL, messages=(message(text),), **fields)


def generate(task: str, request: GenerationRequest, **fields: Any) -> Generate:
    return Generate(task=TaskId(task), attempt=1, request=request, **fields)


def prompt(length: int = 3) -> Prompt:
    return Prompt(tuple(range(300, 300 + length)), "some prompt")


def start_scripted(*, context_length: int = 4096, layers: int = 2, **options: Any) -> Start:
    """What a node sends to a runner of `exo/scripted`."""
    shard = Shard(
        runner=RunnerId("runner"),
        node=NodeId("node"),
        rank=0,
        world_size=1,
        start_layer=0,
        end_layer=layers,
        n_layers=layers,
    )
    instance = Instance(
        id=InstanceId("instance"),
        model=ModelCard(model_id=MODEL, n_layers=layers),
        sharding="Pipeline",
        transport="MlxRing",
        shards=(shard,),
        context_length=context_length,
    )
    return Start(instance=instance, shard=shard, model_path="", options=EngineOptions(engine="scripted", **options))
