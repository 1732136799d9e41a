"""Who is hub: pure decisions from what the nodes say of themselves.

`cluster.py` takes a `View` at each step and performs what `decide` answers. Nothing here knows a clock
or a socket. Why these rules: ADR 1 and ADR 13.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cmp_to_key
from typing import Final

import msgspec

from exo.broker.hello import Hello
from exo.streams.ids import NodeId, SessionId

LOST_AFTER: Final = 1.5
"""Seconds without the bus after which a hub may count as gone: three restarts in place fit into it."""

SETTLE: Final = 0.3
"""Seconds for the last Hellos to arrive once a hub is known to be gone: all rank by the same positions."""

PATIENCE: Final = 3.0
"""Seconds that the top-ranked node gets to become hub before the next one is taken."""

ASKING: Final = 1.0
"""Seconds that a hub which slept listens for a successor before it serves again: two heartbeats."""


class Keep(msgspec.Struct, frozen=True):
    """All is as it should be."""

    why: str


class Wait(msgspec.Struct, frozen=True):
    """Do nothing yet. `node` is set when that node is expected to become hub."""

    why: str
    node: NodeId = NodeId("")


class Follow(msgspec.Struct, frozen=True):
    """Move the bus to this hub."""

    why: str
    hub: Hello


class Serve(msgspec.Struct, frozen=True):
    """Become hub with a new session that begins from State."""

    why: str


class Resume(msgspec.Struct, frozen=True):
    """Become hub again with the stored session."""

    why: str


class Yield(msgspec.Struct, frozen=True):
    """Stop being hub and follow this one."""

    why: str
    hub: Hello


Decision = Keep | Wait | Follow | Serve | Resume | Yield


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All that a decision rests on. Times in seconds of the node's monotonic clock.

    `own` is what the node says of itself, `reached` the newest Hello of each peer that is heard.
    """

    own: Hello
    reached: tuple[Hello, ...]
    now: float
    alone_since: float = 0.0
    """Since when there is no hub: the start, or the loss of the connection."""
    grace: float = 0.0
    """How long a starting node looks around before it serves."""
    last_hub: NodeId = NodeId("")
    """Whom a lost node followed."""
    hub_closed: bool = False
    """The last hub's cluster port hung up, as a dying process does and a cut cable does not."""
    woke_at: float | None = None
    """When a hub found out that it had slept."""
    has_peers: bool = False
    """Whether there are others to ask, reached or not."""
    waits: Mapping[NodeId, float] = {}
    """Since when we wait for these nodes to become hub."""
    unreached: frozenset[NodeId] = frozenset()
    """Hubs whose message server did not answer us a moment ago."""
    stored: SessionId = SessionId("")
    """The session whose store lies on our disk."""


def decide(view: View) -> Decision:
    """Say what to do now."""
    match view.own.role:
        case "hub":
            return _decide_as_hub(view)
        case "following":
            return _decide_as_follower(view)
        case "leaving":
            return Keep("leaving")
        case _:
            return _decide_without_hub(view)


def choose_hub(hubs: Iterable[Hello]) -> Hello:
    """Give the one that goes on when several serve: the same on every node that hears the same Hellos."""
    return min(sorted(hubs, key=lambda hello: hello.node), key=cmp_to_key(_compare_hubs))


def rank(candidates: Iterable[Hello]) -> list[Hello]:
    """Sort nodes without a hub by their right to become it, best first.

    Whoever has State comes before those who have none, and a session before those that it continues.
    """
    listed = list(candidates)
    votes = Counter(hello.position.session for hello in listed)
    superseded = {session for hello in listed for session in hello.position.lineage if session in votes}
    return sorted(
        listed,
        key=lambda hello: (
            not hello.position.session,
            hello.position.session in superseded,
            -votes[hello.position.session],
            -hello.position.applied,
            hello.started_at,
            hello.node,
        ),
    )


def choose_successor(followers: Iterable[Hello]) -> NodeId:
    """Give the node to which a hub that leaves hands its office; empty when there is none."""
    ranked = rank(hello for hello in followers if hello.role == "following" and hello.stands)
    return ranked[0].node if ranked else NodeId("")


def is_serving(hello: Hello) -> bool:
    """Whether this node is a hub that can be followed."""
    return hello.role == "hub" and hello.hub_session != "" and hello.hub_addresses != ()


def _compare_hubs(one: Hello, other: Hello) -> int:
    if one.present != other.present:
        return -1 if one.present > other.present else 1
    continued = _continues(other, one)
    if continued != _continues(one, other):
        # `other` began from a State of `one`'s session, which itself goes on unbroken.
        return -1 if continued else 1
    return -1 if (one.hub_since, one.node) < (other.hub_since, other.node) else 1


def _continues(younger: Hello, older: Hello) -> bool:
    return older.hub_session != younger.hub_session and older.hub_session in (
        *younger.position.lineage,
        younger.position.session,
    )


def _decide_as_hub(view: View) -> Decision:
    rivals = [hello for hello in view.reached if is_serving(hello)]
    winner = choose_hub((view.own, *rivals))
    if winner.node != view.own.node:
        return Yield(f"{winner.name} is the hub of {winner.present} nodes; this one has {view.own.present}", winner)
    if view.woke_at is not None and view.has_peers and view.now - view.woke_at < ASKING:
        return Wait("was asleep, asks the others before it serves again")
    return Keep("is the hub")


def _decide_as_follower(view: View) -> Decision:
    hub = _find(view, view.own.hub)
    if hub is None or hub.role == "hub":
        return Keep(f"follows {hub.name if hub else view.own.hub}")
    serving = [hello for hello in view.reached if is_serving(hello)]
    if serving:
        chosen = _choose_to_follow(view, serving)
        return Follow(f"{hub.name} gave its office up; {chosen.name} is the hub", chosen)
    if hub.role == "leaving" and hub.hub:
        return _succeed(view, hub)
    return _elect(view, why=f"{hub.name} gave its office up")


def _succeed(view: View, hub: Hello) -> Decision:
    """A hub that leaves names its successor, because applied positions still move while it serves."""
    if hub.hub == view.own.node:
        why = f"{hub.name} leaves and hands over"
        return Serve(why) if view.own.stands else Wait(f"{why}, but this node is stopping too")
    if view.now - view.waits.get(hub.hub, view.now) < PATIENCE:
        return Wait(f"{hub.name} leaves and hands over", hub.hub)
    return Keep(f"{hub.name} leaves and its successor is late")


def _decide_without_hub(view: View) -> Decision:
    serving = [hello for hello in view.reached if is_serving(hello)]
    last = _find(view, view.last_hub)
    reason = _reason_to_wait(view, last)
    if reason:
        return Wait(reason)
    if serving:
        chosen = last if last in serving and last.node not in view.unreached else _choose_to_follow(view, serving)
        return Follow(f"{chosen.name} is the hub", chosen)
    reason = _reason_not_to_elect(view, last)
    if reason:
        return Wait(reason)
    return _elect(view, why="the hub is gone" if view.own.role == "lost" else "no hub was found")


def _choose_to_follow(view: View, serving: list[Hello]) -> Hello:
    return choose_hub([hello for hello in serving if hello.node not in view.unreached] or serving)


def _reason_to_wait(view: View, last: Hello | None) -> str:
    """A lost hub gets the time of a restart in place; empty when it is over, or clearly in vain."""
    if view.own.role != "lost" or view.now - view.alone_since >= LOST_AFTER:
        return ""
    if last is not None:
        return f"{last.name} is up and restarts its message server" if last.role == "hub" else ""
    return "" if view.hub_closed else "the hub does not answer"


def _reason_not_to_elect(view: View, last: Hello | None) -> str:
    if last is not None and last.role == "hub":
        return f"{last.name} is up but its message server is not"
    others = sorted(hello.name for hello in view.reached if hello.role == "following")
    if others:
        return f"still connected to a hub that this node does not reach: {', '.join(others)}"
    alone_for = view.now - view.alone_since
    if view.own.role == "lost":
        return "the hub is gone; listens to the others" if alone_for < SETTLE else ""
    return "looks for other nodes" if alone_for < view.grace else ""


def _elect(view: View, *, why: str) -> Decision:
    others = [hello for hello in view.reached if _may_serve(view, hello)]
    candidates = [view.own, *others] if view.own.stands else others
    if not candidates:
        return Wait(f"{why}; this node is stopping")
    first = rank(candidates)[0]
    if first.node != view.own.node:
        return Wait(f"{why}; {first.name} is to become the hub", first.node)
    if view.stored and _is_current(view, view.stored):
        return Resume(f"{why}; goes on with the stored session")
    return Serve(f"{why}; this node ranks first of {len(candidates)}")


def _may_serve(view: View, hello: Hello) -> bool:
    hubless = hello.role in {"starting", "lost"} or (view.own.role == "following" and hello.hub == view.own.hub)
    return hubless and hello.stands and view.now - view.waits.get(hello.node, view.now) < PATIENCE


def _is_current(view: View, session: SessionId) -> bool:
    """A store of an older session than State's would lose what came after."""
    return view.own.position.session in {"", session}


def _find(view: View, node: NodeId) -> Hello | None:
    return next((hello for hello in view.reached if hello.node == node), None)
