"""What of new measurements is news: only that is written to the log, so that it stays still at rest. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from exo.services.links.interfaces import Interface, find_interface
from exo.services.links.prober import Probed
from exo.streams.ids import NodeId
from exo.streams.links import Link

LATENCY_FACTOR: Final = 2.0
LATENCY_STEP: Final = 0.0005
"""Seconds: twice nothing is nothing."""
BANDWIDTH_SHARE: Final = 0.3

Pair = tuple[NodeId, str, str]


def pair_of(link: Link) -> Pair:
    """What makes a link the same one as before."""
    return link.peer, link.local_address, link.remote_address


class News(msgspec.Struct, frozen=True):
    """Peers whose links came, went or are of another kind, and peers of which only numbers have moved."""

    changed: frozenset[NodeId]
    moved: frozenset[NodeId]

    def __bool__(self) -> bool:
        return bool(self.changed or self.moved)


def find_news(before: Sequence[Link], after: Sequence[Link]) -> News:
    """Compare what is written with what is measured."""
    known = {pair_of(link): link for link in before}
    found = {pair_of(link): link for link in after}
    changed = {peer for peer, _, _ in known.keys() ^ found.keys()}
    common = [(known[pair], found[pair]) for pair in known.keys() & found.keys()]
    changed |= {new.peer for old, new in common if _is_another(old, new)}
    moved = {new.peer for old, new in common if _has_moved(old, new)}
    return News(frozenset(changed), frozenset(moved - changed))


def _is_another(before: Link, after: Link) -> bool:
    first_bandwidth = before.bandwidth == 0 != after.bandwidth
    return first_bandwidth or (before.interface, before.kind) != (after.interface, after.kind)


def _has_moved(before: Link, after: Link) -> bool:
    """Whether it is twice as slow or quick, or a third wider or narrower.

    What stays on one machine has no such numbers: they only tell how busy it is.
    """
    if after.kind == "loopback":
        return False
    low, high = sorted((before.latency, after.latency))
    if high > LATENCY_FACTOR * low and high - low > LATENCY_STEP:
        return True
    return abs(after.bandwidth - before.bandwidth) > BANDWIDTH_SHARE * before.bandwidth


def make_links(
    probed: Iterable[Probed],
    *,
    peer: NodeId,
    before: Iterable[Link],
    interfaces: Mapping[str, Interface],
    now: int,
) -> tuple[Link, ...]:
    """Give the links to one peer; where bandwidth was not measured this time, the last one stands. `now` in Unix ms."""
    known = {pair_of(link): link.bandwidth for link in before}
    links: list[Link] = []
    for one in probed:
        interface = find_interface(interfaces, local=one.local_address, remote=one.remote_address)
        pair = (peer, one.local_address, one.remote_address)
        links.append(
            Link(
                peer=peer,
                local_address=one.local_address,
                remote_address=one.remote_address,
                latency=one.latency,
                interface=interface.name,
                kind=interface.kind,
                bandwidth=one.bandwidth or known.get(pair, 0),
                measured_at=now,
            )
        )
    return tuple(sorted(links, key=pair_of))
