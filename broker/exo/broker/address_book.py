"""Which addresses there are to dial, and when: every one that was suggested, with what became of it.

Pure: the time comes in. Used by `peers.py`. An address of a node that is connected rests; all others
are tried again with exponential backoff and full jitter, for ever, so that a cluster heals by itself.
"""

import random
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from exo.broker.addresses import Address
from exo.broker.peering import NOBODY, Attempt, Source
from exo.streams.ids import NodeId

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
LEAST_PAUSE: Final = 0.05
RARE_PAUSE: Final = 60.0
"""For an address that is our own, and for one that failed `MANY_FAILURES` times in a row and nobody asked for."""

REFUSED: Final = "connection_refused"
"""The outcome of an attempt that a machine answered with: nothing listens there."""

MANY_FAILURES: Final = 100
MOST_ENTRIES: Final = 256
MOST_AT_ONCE: Final = 32


class Entry(msgspec.Struct, kw_only=True):
    """One address. `next_at`, `refused_since` and `refused_at` are monotonic, `tried_at` Unix ms."""

    address: Address
    sources: set[Source]
    node: NodeId = NOBODY
    outcome: str = "untried"
    detail: str = ""
    failures: int = 0
    tried_at: int = 0
    next_at: float = 0.0
    busy: bool = False
    answered: bool = False
    """Whether a member was ever met there."""
    refused_since: float = 0.0
    """When the first of the newest attempts was refused that were refused on end; 0 when the newest was not."""
    refused_at: float = 0.0

    @property
    def is_asked_for(self) -> bool:
        """Whether a person named it."""
        return "bootstrap" in self.sources


class AddressBook:
    """All addresses. `draw(limit)` gives a random number from 0 to `limit`."""

    def __init__(self, *, draw: Callable[[float], float] = lambda limit: random.uniform(0, limit)) -> None:  # noqa: S311 - jitter
        self._entries: dict[Address, Entry] = {}
        self._draw = draw

    def suggest(self, address: Address, *, source: Source, node: NodeId = NOBODY) -> bool:
        """Add an address, or learn more about it; tells whether it is new."""
        entry = self._entries.get(address)
        if entry is None:
            if len(self._entries) >= MOST_ENTRIES and not self._forget_one():
                return False
            self._entries[address] = Entry(address=address, sources={source}, node=node)
            return True
        entry.sources.add(source)
        # Who answered there is worth more than who is said to be there, a peer itself more than others.
        if not entry.node or (source == "greeting" and entry.outcome != "connected"):
            entry.node = node
        return False

    def _forget_one(self) -> bool:
        spare = [entry for entry in self._entries.values() if entry.failures and not entry.is_asked_for]
        if not spare:
            return False
        del self._entries[max(spare, key=lambda entry: entry.failures).address]
        return True

    def take_due(self, now: float, *, connected: Collection[NodeId]) -> list[Address]:
        """Give what is to be dialled now; each must come back by `meet` or `fail`, then `rest`."""
        room = MOST_AT_ONCE - sum(entry.busy and entry.node not in connected for entry in self._entries.values())
        due = [entry for entry in self._list_waiting(connected) if entry.next_at <= now]
        taken = sorted(due, key=lambda entry: entry.next_at)[: max(room, 0)]
        for entry in taken:
            entry.busy = True
        return [entry.address for entry in taken]

    def find_next(self, *, connected: Collection[NodeId]) -> float | None:
        """Give when the next address is due; None when all rest."""
        return min((entry.next_at for entry in self._list_waiting(connected)), default=None)

    def _list_waiting(self, connected: Collection[NodeId]) -> list[Entry]:
        return [entry for entry in self._entries.values() if not entry.busy and entry.node not in connected]

    def meet(self, address: Address, *, node: NodeId, at: int) -> None:
        """Note that a member answered there. Its failures count on until `settle`: it may turn us away yet."""
        entry = self._entries[address]
        entry.answered = True
        entry.node, entry.outcome, entry.detail, entry.tried_at = node, "connected", "", at

    def settle(self, node: NodeId) -> None:
        """Note that a member let us in, by whichever address."""
        for entry in self._entries.values():
            if entry.node == node:
                entry.failures = 0

    def fail(self, address: Address, outcome: str, detail: str, *, at: int) -> bool:
        """Note why nobody was met there; tells whether that is news."""
        entry = self._entries[address]
        is_news = entry.outcome != outcome
        entry.outcome, entry.detail, entry.tried_at = outcome, detail, at
        entry.failures += 1
        return is_news

    def rest(self, address: Address, *, now: float) -> None:
        """Let an address wait for its next turn."""
        entry = self._entries[address]
        entry.busy = False
        if entry.outcome == REFUSED:
            entry.refused_since, entry.refused_at = entry.refused_since or now, now
        else:
            entry.refused_since = entry.refused_at = 0.0
        entry.next_at = now + self._choose_pause(entry)

    def _choose_pause(self, entry: Entry) -> float:
        if entry.outcome == "same_node" or (entry.failures > MANY_FAILURES and not entry.is_asked_for):
            return RARE_PAUSE
        limit = min(FIRST_PAUSE * 2 ** min(entry.failures, 10), LONGEST_PAUSE)
        return max(self._draw(limit), LEAST_PAUSE)

    def hurry(self, node: NodeId | None = None) -> None:
        """Let the addresses of a node, or all, be dialled at once."""
        for entry in self._entries.values():
            if node is None or entry.node == node:
                entry.failures, entry.next_at = 0, 0.0

    def find(self, node: NodeId) -> list[str]:
        """Give the addresses where this node answered."""
        return [str(one.address) for one in self._entries.values() if one.node == node and one.outcome == "connected"]

    def find_refusal(self, address: str, *, after: float, is_own: bool) -> float | None:
        """Give since when nobody listens where a member was, later than `after`; None unless that is certain.

        Only an address where it answered, or that it calls its own, says something: what refuses elsewhere
        may be a router, a firewall, or this very machine.
        """
        entry = next((one for one in self._entries.values() if str(one.address) == address), None)
        if entry is None or entry.refused_at <= after or not (entry.answered or is_own):
            return None
        return max(entry.refused_since, after)

    def report(self, *, reached: Collection[NodeId]) -> tuple[Attempt, ...]:
        """Give all entries in the order they came in; those of a node that is reached have not failed."""
        return tuple(_describe(entry, is_reached=entry.node in reached) for entry in self._entries.values())


def _describe(entry: Entry, *, is_reached: bool) -> Attempt:
    # Its addresses rest with what became of them before it was met, maybe by another one.
    return Attempt(
        address=str(entry.address),
        sources=tuple(sorted(entry.sources)),
        outcome="connected" if is_reached else entry.outcome,
        detail="" if is_reached else entry.detail,
        node=entry.node,
        failures=0 if is_reached else entry.failures,
        tried_at=entry.tried_at,
    )
