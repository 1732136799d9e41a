"""What the broker asks of State, which lives above it: where it stands, and to carry a new session.

`exo.services` fulfils it. Every follower is a standby: its State is enough to begin a new session.
"""

from typing import Protocol

from exo.broker.bus import Bus
from exo.broker.hello import Position
from exo.streams.ids import SessionId


class Standby(Protocol):
    """The State of this node."""

    @property
    def position(self) -> Position:
        """Where it stands now."""
        ...

    async def inaugurate(self, bus: Bus, session: SessionId) -> None:
        """Begin a session on an empty store whose event log starts at `position.applied + 1`.

        Stores State as the snapshot at its base and appends the first epoch record. Idempotent until it
        has returned. `bus` may do everything.
        """
        ...
