"""What became of a session whose cluster joined another one: kept in State, so that nothing is dropped silently."""

from typing import Literal

import msgspec

from exo.streams.ids import SessionId

KEPT_DROPPED = 256

DroppedKind = Literal["card", "instance", "key", "task"]


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the other cluster did not take over, and why. `name` is that of the model or key."""

    kind: DroppedKind
    id: str
    name: str
    reason: str


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """One merge. `session` is the one that ended; `at` is Unix time in ms of the newest report of it."""

    session: SessionId
    at: int
    adopted: tuple[str, ...] = ()
    """Ids of cards and instances that live on."""
    dropped: tuple[Dropped, ...] = ()
    more_dropped: int = 0
    """Beyond those that are listed."""


def add_report(merge: Merge, *, adopted: tuple[str, ...], dropped: tuple[Dropped, ...], at: int) -> Merge:
    """Join what one more node says of a merge: several find the same; what any saw adopted was not dropped."""
    lives = tuple(dict.fromkeys((*merge.adopted, *adopted)))
    known = {(item.kind, item.id): item for item in (*dropped, *merge.dropped)}
    gone = tuple(item for item in known.values() if item.id not in lives)
    return Merge(
        session=merge.session,
        at=at,
        adopted=lives,
        dropped=gone[:KEPT_DROPPED],
        more_dropped=merge.more_dropped + max(len(gone) - KEPT_DROPPED, 0),
    )
