"""A placed copy of a model, its shards, and the life of the runner behind each shard."""

from typing import Literal

import msgspec

from exo.streams.ids import InstanceId, NodeId, RunnerId
from exo.streams.models import ModelCard

Sharding = Literal["Pipeline", "Tensor"]
Transport = Literal["MlxRing", "MlxJaccl"]


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a model that one runner holds: layers `start_layer` up to, not including, `end_layer`."""

    runner: RunnerId
    node: NodeId
    rank: int
    world_size: int
    start_layer: int
    end_layer: int
    n_layers: int
    memory_bytes: int = 0
    """What the shard is expected to need: weights, KV cache and overhead."""


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One placed copy of a model; `placed_at` is Unix time in ms."""

    id: InstanceId
    model: ModelCard
    sharding: Sharding
    transport: Transport
    shards: tuple[Shard, ...]
    context_length: int
    """Tokens of prompt plus answer that memory was counted for."""
    placed_at: int = 0

    def rank_zero(self) -> Shard:
        """Give the shard that renders, schedules and publishes."""
        return next(shard for shard in self.shards if shard.rank == 0)


class Starting(msgspec.Struct, frozen=True, tag="starting"):
    """The process is being started."""


class Connecting(msgspec.Struct, frozen=True, tag="connecting"):
    """The ranks are joining their compute group."""


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    """Weights are being read."""

    layers_loaded: int
    total_layers: int


class WarmingUp(msgspec.Struct, frozen=True, tag="warming_up"):
    """A first request runs through the engine, so that the first user's need not compile kernels."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Serving."""


class Stopping(msgspec.Struct, frozen=True, tag="stopping"):
    """The process was asked to end."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The process died or gave up. `evidence` holds the last lines of its stderr."""

    code: str
    message: str
    evidence: tuple[str, ...] = ()
    attempt: int = 1
    retry_at: int = 0
    """Unix time in ms of the next start by the clock of its node, 0 when there is none; shown, never waited for."""


RunnerStatus = Starting | Connecting | Loading | WarmingUp | Ready | Stopping | Failed


class RunnerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A runner of a placed instance; `since` is Unix time in ms of the last change of status."""

    id: RunnerId
    instance: InstanceId
    node: NodeId
    rank: int
    status: RunnerStatus
    since: int = 0


class RemovedInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that is gone, with its reason kept where the user looks."""

    id: InstanceId
    model_id: str
    code: str
    reason: str
    evidence: tuple[str, ...] = ()
    removed_at: int = 0
