"""What the worker can do, as data; `plan` chooses, the service performs."""

import msgspec

from exo.streams.ids import RunnerId, TaskId
from exo.streams.instances import Instance, Shard
from exo.streams.tasks import TaskRecord


class StartRunner(msgspec.Struct, frozen=True):
    """Start the process of a shard, for the first time or again."""

    instance: Instance
    shard: Shard


class StopRunner(msgspec.Struct, frozen=True):
    """End the process of a runner whose instance is gone."""

    runner: RunnerId


class DispatchTask(msgspec.Struct, frozen=True):
    """Fetch a request's body and hand it to the runner."""

    runner: RunnerId
    task: TaskRecord


class CancelTask(msgspec.Struct, frozen=True):
    """Tell the runner to drop a request that State no longer has."""

    runner: RunnerId
    task: TaskId
    code: str
    message: str


class DisownTask(msgspec.Struct, frozen=True):
    """Drop a request that was begun anew elsewhere, without a word: whatever were said would be about that one."""

    runner: RunnerId
    task: TaskId


class RepeatEnd(msgspec.Struct, frozen=True):
    """Record the end of a request again: State lists it as running, and it has ended here."""

    task: TaskId


class FailTask(msgspec.Struct, frozen=True):
    """End a request that its runner, which failed, never saw."""

    task: TaskRecord
    code: str
    message: str


Action = StartRunner | StopRunner | DispatchTask | CancelTask | DisownTask | RepeatEnd | FailTask
