"""When to measure which peer. Pure but for the jitter it is given; times are seconds that never jump."""

from collections.abc import Callable, Iterable

import msgspec

from exo.streams.ids import NodeId

LATENCY_INTERVAL = 60.0
BANDWIDTH_INTERVAL = 600.0
_JITTER = 0.5
"""Of the interval, so that sixteen nodes that started together do not measure together for ever."""


class Turn(msgspec.Struct, frozen=True):
    """What to measure now."""

    peer: NodeId
    bandwidth: bool


class _Due(msgspec.Struct):
    latency_at: float
    bandwidth_at: float


class Schedule:
    """`draw()` gives a number from 0 to 1."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._due: dict[NodeId, _Due] = {}

    def change(self, peer: NodeId, *, now: float) -> None:
        """Something about the way to a peer is different: measure everything soon."""
        self._due[peer] = _Due(now, now)

    def change_all(self, *, now: float) -> None:
        """Something about this node's own addresses is different."""
        for peer in list(self._due):
            self.change(peer, now=now)

    def turns(self, online: Iterable[NodeId], *, now: float, busy: bool) -> list[Turn]:
        """Give what is due. While this node is `busy` no bandwidth is measured: it would slow its tokens down."""
        turns: list[Turn] = []
        for peer in online:
            due = self._due.setdefault(peer, _Due(now, now))
            if due.bandwidth_at <= now and not busy:
                turns.append(Turn(peer, bandwidth=True))
            elif due.latency_at <= now:
                turns.append(Turn(peer, bandwidth=False))
        return turns

    def done(self, turn: Turn, *, now: float) -> None:
        """Plan the next time."""
        due = self._due.setdefault(turn.peer, _Due(now, now))
        due.latency_at = now + self._spread(LATENCY_INTERVAL)
        if turn.bandwidth:
            due.bandwidth_at = now + self._spread(BANDWIDTH_INTERVAL)

    def _spread(self, interval: float) -> float:
        return interval * (1 + _JITTER * self._draw())
