"""A work-queue consumer held in memory: what is out for work, since when and how often.

Owned by `MemoryServer`; `MemoryBus.work` asks it for the next message.
"""

from exo.broker.bus import StoredMessage
from exo.broker.memory_stream import MemoryStream


class MemoryConsumer:
    """The state of one durable consumer; times in seconds of the server's clock."""

    def __init__(self, stream: MemoryStream, *, ack_wait: float) -> None:
        self.stream = stream
        self.ack_wait = ack_wait
        self._due: dict[int, float] = {}
        self._deliveries: dict[int, int] = {}

    def take(self, now: float) -> tuple[StoredMessage, int] | None:
        """Give the first message that waits, and how often it was delivered with this time."""
        for message in self.stream.messages:
            if self._due.get(message.sequence, 0) <= now:
                deliveries = self._deliveries.get(message.sequence, 0) + 1
                self._deliveries[message.sequence] = deliveries
                self._due[message.sequence] = now + self.ack_wait
                return message, deliveries
        return None

    def next_due(self, now: float) -> float | None:
        """Seconds until a message that is out comes back; None when none is out."""
        held = [due - now for due in self._due.values()]
        return max(0, min(held)) if held else None

    def settle(self, sequence: int) -> None:
        """Remove a message for good."""
        self._due.pop(sequence, None)
        self._deliveries.pop(sequence, None)
        self.stream.remove({sequence})

    def postpone(self, sequence: int, *, until: float) -> None:
        """Give a message back at a time."""
        if sequence in self._due:
            self._due[sequence] = until
            self.stream.notify()
