"""Starting MLX engines in tests and driving them by hand."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import msgspec

from exo.runners.engines.engine import EndStep, Engine, FaultStep, PrefillStep, Step, TokenStep
from exo.runners.engines.mlx.engine import MlxEngine
from exo.streams.ids import InstanceId, ModelId, NodeId, RunnerId, TaskId
from exo.streams.instances import Instance, Shard
from exo.streams.models import ModelCard, SamplingDefaults
from exo.streams.pipe import EngineOptions, Start
from exo.streams.requests import GenerationRequest, Message, Sampling, TextPart

MODEL = ModelId("test/tiny")
GREEDY = Sampling(temperature=0)
NO_ADVICE = SamplingDefaults()
_numbers = count()


def make_start(
    folder: Path, *, context_length: int = 0, sampling: SamplingDefaults = NO_ADVICE, **options: object
) -> Start:
    """The first frame of a runner for the model in `folder`."""
    shard = Shard(
        runner=RunnerId("runner"),
        node=NodeId("node"),
        rank=0,
        world_size=1,
        start_layer=0,
        end_layer=4,
        n_layers=4,
    )
    instance = Instance(
        id=InstanceId("instance"),
        model=ModelCard(model_id=MODEL, sampling=sampling),
        sharding="Pipeline",
        transport="MlxRing",
        shards=(shard,),
        context_length=context_length,
    )
    chosen = msgspec.convert({"engine": "mlx", **options}, EngineOptions)
    return Start(instance=instance, shard=shard, model_path=str(folder), options=chosen)


def load_engine(folder: Path, **start: object) -> MlxEngine:
    """An engine that has loaded the model in `folder`."""
    engine = MlxEngine(make_start(folder, **start))  # pyright: ignore[reportArgumentType]
    engine.load(lambda _layers, _total: None)
    return engine


def ask(text: str, *, sampling: Sampling = GREEDY, max_tokens: int = 12, **more: object) -> GenerationRequest:
    """A plain prompt; no template touches it."""
    request = GenerationRequest(model=MODEL, prompt=text, sampling=sampling, max_tokens=max_tokens)
    return msgspec.structs.replace(request, **more)


def chat(text: str, *, sampling: Sampling = GREEDY, max_tokens: int = 12, **more: object) -> GenerationRequest:
    """One user message."""
    messages = (Message(role="user", content=(TextPart(text),)),)
    request = GenerationRequest(model=MODEL, messages=messages, sampling=sampling, max_tokens=max_tokens)
    return msgspec.structs.replace(request, **more)


def admit(engine: Engine, request: GenerationRequest) -> TaskId:
    """Give a request a slot."""
    task = TaskId(f"task-{next(_numbers)}")
    engine.admit(task, engine.render(request), request)
    return task


def run(engine: Engine, *requests: GenerationRequest) -> list[list[Step]]:
    """Run requests side by side to their ends; give the steps of each."""
    tasks = [admit(engine, request) for request in requests]
    return collect(engine, tasks)


def collect(engine: Engine, tasks: Sequence[TaskId]) -> list[list[Step]]:
    """Step until no sequence is left; give the steps of these tasks."""
    steps: dict[TaskId, list[Step]] = {task: [] for task in tasks}
    while engine.active:
        for step in engine.step():
            if step.task in steps:
                steps[step.task].append(step)
    return [steps[task] for task in tasks]


def tokens_of(steps: Sequence[Step]) -> list[int]:
    """The drawn tokens."""
    return [step.token for step in steps if isinstance(step, TokenStep)]


def text_of(steps: Sequence[Step]) -> str:
    """The whole answer."""
    return "".join(step.text for step in steps if isinstance(step, TokenStep | EndStep))


def end_of(steps: Sequence[Step]) -> EndStep | FaultStep:
    """The last step, which must be an end."""
    assert isinstance(steps[-1], EndStep | FaultStep)
    assert not any(isinstance(step, EndStep | FaultStep) for step in steps[:-1])
    return steps[-1]


def prefill_of(steps: Sequence[Step]) -> list[int]:
    """How the prompt was worked off."""
    return [step.processed for step in steps if isinstance(step, PrefillStep)]
