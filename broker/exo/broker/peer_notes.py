"""What went wrong between nodes, kept for `exo status` and `exo doctor` and logged without flooding the log.

Written by the cluster port, the dialling and discovery. Bounded in every dimension: anybody on the
LAN can make entries here.
"""

import time
from collections.abc import Collection
from typing import Final, TypeVar

import structlog
from msgspec.structs import replace

from exo.broker.cluster_frames import Greeting
from exo.broker.greeting import RefusedError
from exo.broker.peering import BadAddress, Refusal, Stranger, Unadmitted
from exo.streams.ids import NodeId

log = structlog.get_logger(__name__)

MOST_NOTES: Final = 128
LONGEST_TEXT: Final = 300
LOG_PAUSE: Final = 10.0
"""Seconds between two log lines about the same kind of trouble."""

ADMISSION_PAUSE: Final = 60.0
"""Seconds between two log lines about a peer that cannot be let in for the same reason."""

LASTING: Final = 150_000
"""Milliseconds after which a refusal is over: addresses are dialled again long before."""

Key = TypeVar("Key")
Note = TypeVar("Note")


class Notes:
    """The newest notes of each kind."""

    def __init__(self) -> None:
        self.refusals: dict[tuple[str, bool, str], Refusal] = {}
        self.strangers: dict[NodeId, Stranger] = {}
        self.bad_addresses: dict[str, BadAddress] = {}
        self.counters: dict[str, int] = {}
        self.unadmitted: dict[NodeId, Unadmitted] = {}
        self._skipped: dict[tuple[str, str], None] = {}
        self._logged: dict[str, float] = {}

    def refuse(self, error: RefusedError, *, address: str) -> None:
        """Keep that somebody was turned away, by us or by them; one log line for the same pair and reason."""
        if error.code in ("connected", "same_node"):
            # A second connection of friends, or to ourselves.
            return
        other = error.greeting
        note = Refusal(
            code=error.code,
            reason=_clip(error.reason),
            by_us=error.by_us,
            node=NodeId(_clip(other.node)) if other else NodeId(""),
            name=_clip(other.name) if other else "",
            cluster=_clip(other.cluster) if other else "",
            version=_clip(other.version) if other else "",
            address=address,
            refused_at=now_ms(),
        )
        key = (note.code, note.by_us, note.node or address)
        earlier = self.refusals.pop(key, None)
        if earlier is None:
            by = "we refused a node" if note.by_us else "a node refused us"
            log.warning(by, code=note.code, name=note.name, node=note.node, address=address, reason=note.reason)
        self.refusals[key] = replace(note, times=earlier.times + 1 if earlier else 1)
        _trim(self.refusals)

    def list_refusals(self, reached: Collection[NodeId]) -> tuple[Refusal, ...]:
        """Give the refusals that stand: neither old nor of a node that is reached, unless by its copy."""
        since = now_ms() - LASTING
        return tuple(
            one
            for one in self.refusals.values()
            if one.refused_at >= since and (one.code == "duplicate_node" or one.node not in reached)
        )

    def forgive(self, node: NodeId, *, address: str) -> None:
        """Forget what kept a node outside, now that it is in; its copy may still be there."""
        self.unadmitted.pop(node, None)
        for key, refusal in tuple(self.refusals.items()):
            if refusal.code != "duplicate_node" and (refusal.node == node or refusal.address == address):
                del self.refusals[key]

    def fail_admission(self, greeting: Greeting, error: Exception) -> None:
        """Keep why a peer could not be let in; one log line at most every `ADMISSION_PAUSE` for the same reason."""
        node, name = NodeId(_clip(greeting.node)), _clip(greeting.name)
        reason = _clip(f"{type(error).__name__}: {error}".removesuffix(": "))
        self.unadmitted.pop(node, None)
        self.unadmitted[node] = Unadmitted(node, name, reason)
        _trim(self.unadmitted)
        now, kind = time.monotonic(), f"admission {node} {reason}"
        if now - self._logged.get(kind, -ADMISSION_PAUSE) >= ADMISSION_PAUSE:
            self._logged.pop(kind, None)
            self._logged[kind] = now
            _trim(self._logged)
            log.error("a peer cannot be let in", name=name, node=node, exc_info=error)

    def meet_stranger(self, stranger: Stranger) -> None:
        """Keep a node of another cluster; one log line for each."""
        earlier = self.strangers.pop(stranger.node, None)
        if earlier is None or earlier.cluster != stranger.cluster or earlier.version != stranger.version:
            log.info(
                "a node of another cluster is on the network",
                name=stranger.name,
                cluster=stranger.cluster,
                version=stranger.version,
                address=stranger.address,
            )
        self.strangers[stranger.node] = stranger
        _trim(self.strangers)

    def miss_stranger(self, node: NodeId) -> None:
        """Forget a node of another cluster that has left the network, or that cluster."""
        self.strangers.pop(node, None)

    def reject_address(self, text: str, reason: str, *, source: str) -> None:
        """Keep an address that could not be read."""
        text = _clip(text)
        if text not in self.bad_addresses:
            log.warning("skipped an address that cannot be read", address=text, reason=reason, source=source)
            self.bad_addresses[text] = BadAddress(text, reason)
            _trim(self.bad_addresses)

    def count(self, kind: str, **details: str) -> None:
        """Count something that was closed or skipped; a log line at most every `LOG_PAUSE` seconds for each kind."""
        self.counters[kind] = self.counters.get(kind, 0) + 1
        now = time.monotonic()
        if now - self._logged.get(kind, -LOG_PAUSE) >= LOG_PAUSE:
            self._logged[kind] = now
            details = {name: _clip(text) for name, text in details.items()}
            log.warning("trouble on the cluster port", kind=kind, times=self.counters[kind], **details)

    def skip_frame(self, kind: str, sender: Greeting) -> None:
        """Count a frame of a type that this version does not know; one log line for each peer and type."""
        self.counters["unknown_frames"] = self.counters.get("unknown_frames", 0) + 1
        key = (sender.node, _clip(kind))
        if key not in self._skipped:
            self._skipped[key] = None
            _trim(self._skipped)
            log.warning("skipped a frame of an unknown type", kind=key[1], name=sender.name, version=sender.version)


def now_ms() -> int:
    """Give the wall clock in Unix ms."""
    return time.time_ns() // 1_000_000


def _clip(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"


def _trim(notes: dict[Key, Note]) -> None:
    while len(notes) > MOST_NOTES:
        del notes[next(iter(notes))]
