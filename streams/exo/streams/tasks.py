"""Requests at work and requests that ended, as State keeps them. Never any text of a user."""

from typing import Literal

import msgspec

from exo.streams.chunks import Usage
from exo.streams.ids import BootId, CommandId, InstanceId, ModelId, NodeId, TaskId

OnDisconnect = Literal["cancel", "continue"]
Outcome = Literal["finished", "failed", "cancelled"]


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request at work. `boot` is that of rank 0's node when it was assigned; times are Unix ms."""

    id: TaskId
    command: CommandId
    model: ModelId
    instance: InstanceId
    node: NodeId
    boot: BootId
    gateway: NodeId
    gateway_boot: BootId
    attempt: int = 1
    resumed: bool = False
    """Chunks of its answer are out already: only the process life that made them can go on with it."""
    key: str = ""
    priority: int = 0
    on_disconnect: OnDisconnect = "cancel"
    assigned_at: int = 0
    time_limit: int = 0
    """Milliseconds from here on, 0 for no limit: each judge counts from when it got to know of the request."""


class EndedTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a request ended. `last_index` is that of its last chunk, -1 when there is none."""

    id: TaskId
    outcome: Outcome
    model: ModelId
    instance: InstanceId
    node: NodeId
    code: str = ""
    message: str = ""
    last_index: int = -1
    usage: Usage = Usage()
    ended_at: int = 0
