"""How the requests of this process life ended here, kept so that an end which was lost can be said again.

A hub that dies may take the newest facts with it: State then lists a request as running that has long
ended. Filled by the worker, read by `plan`.
"""

from collections.abc import Mapping

import msgspec

from exo.streams.events import TaskFailed, TaskFinished
from exo.streams.ids import TaskId

KEPT = 4096
"""Far more than end within the seconds that a hub can lose."""


class End(msgspec.Struct, frozen=True):
    """The fact about an end, and which attempt it was."""

    fact: TaskFinished | TaskFailed
    attempt: int


class Ends:
    """The newest ends, oldest dropped first."""

    def __init__(self) -> None:
        self._ends: dict[TaskId, End] = {}
        self._unsaid: dict[TaskId, int] = {}

    @property
    def unsaid(self) -> Mapping[TaskId, int]:
        """The attempt of each end that this session's log does not know, as far as this node can tell."""
        return self._unsaid

    def __contains__(self, task: TaskId) -> bool:
        """Whether the end of a request is kept."""
        return task in self._ends

    def add(self, end: End) -> None:
        """Keep an end, not said yet."""
        self._ends[end.fact.task] = end
        self._unsaid[end.fact.task] = end.attempt
        while len(self._ends) > KEPT:
            oldest = next(iter(self._ends))
            del self._ends[oldest]
            self._unsaid.pop(oldest, None)

    def say(self, task: TaskId) -> TaskFinished | TaskFailed:
        """Give the fact to record."""
        self._unsaid.pop(task, None)
        return self._ends[task].fact

    def begin_session(self) -> None:
        """Count every end as not said: the log may be without the newest of them."""
        self._unsaid = {task: end.attempt for task, end in self._ends.items()}
