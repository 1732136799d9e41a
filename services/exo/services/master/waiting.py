"""How long things have waited, for the master's judgement: each time is measured by one clock alone.

The clocks of the computers of a cluster may disagree by hours. A command's time in the queue is that
of the broker which holds it; the age of a request is that of this master's own acquaintance with it.
"""

from exo.broker.bus import Bus, StoredMessage
from exo.services.clock import Clock
from exo.streams.ids import TaskId
from exo.streams.layout import COMMANDS
from exo.streams.state import State

_NEGLIGIBLE = -1.0
"""Seconds; a message from further in the future shows that the broker's clock was set."""


class QueueClock:
    """The broker's time of day, asked for only when a message looks late."""

    def __init__(self, bus: Bus, *, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._ahead: float | None = None
        """Seconds by which the broker's time of day is ahead of our monotonic clock."""

    async def age(self, message: StoredMessage, *, suspect: float) -> float:
        """Give the seconds since a command was stored. The broker is asked again above `suspect` seconds."""
        age = self._age(message)
        if age is None or not _NEGLIGIBLE < age < suspect:
            told = (await self._bus.stream_info(COMMANDS.name)).time / 1000
            self._ahead = told - self._clock.monotonic()
            age = told - message.time / 1000
        return max(age, 0)

    def _age(self, message: StoredMessage) -> float | None:
        if self._ahead is None:
            return None
        return self._clock.monotonic() + self._ahead - message.time / 1000


class TaskAges:
    """For how long this master has known each request that has a time limit. Begins anew at each reign."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._known_since: dict[tuple[TaskId, int], float] = {}

    def look(self, state: State) -> dict[TaskId, float]:
        """Give the ages in seconds of all limited requests at work, by their present attempt."""
        now = self._clock.monotonic()
        limited = [(task.id, task.attempt) for task in state.tasks.values() if task.time_limit]
        self._known_since = {key: self._known_since.get(key, now) for key in limited}
        return {task: now - since for (task, _), since in self._known_since.items()}
