"""What a node remembers from one step of the arbitration to the next. Pure but for its own fields.

Owned by `cluster.py`; the simulated clusters of the property tests use it too.
"""

from typing import Final

from exo.broker.arbitration import Decision, View, Wait
from exo.broker.hello import Hello, Role
from exo.broker.peering import PeersReport, PeersSettings
from exo.streams.ids import NodeId, SessionId

GRACE: Final = 1.0
"""Seconds that a starting node looks around."""

BOOTSTRAP_GRACE: Final = 3.0
"""The same while a peer that a person named has not answered."""

UNREACHED_FOR: Final = 5.0
"""Seconds for which a hub that could not be followed comes after others."""

STALE_WAIT: Final = 30.0
"""Seconds after which a node that was skipped may be waited for again."""


def choose_grace(settings: PeersSettings, report: PeersReport) -> float:
    """Give the seconds to look around before a node serves: none when there is nowhere to look."""
    if any("bootstrap" in attempt.sources and attempt.outcome != "connected" for attempt in report.attempts):
        return BOOTSTRAP_GRACE
    return GRACE if settings.discovery or report.attempts else 0.0


class Situation:
    """The role of this node, whom it follows, and since when. Times are monotonic seconds."""

    def __init__(self, *, now: float) -> None:
        self.role: Role = "starting"
        self.hub = NodeId("")
        self.session = SessionId("")
        self.since = 0
        """When the hub's session began, Unix ms."""
        self.addresses: tuple[str, ...] = ()
        self.stands = True
        """Whether this node can become hub."""
        self.why = "starting"
        self._alone_since = now
        self._last_hub = NodeId("")
        self._woke_at: float | None = None
        self._waits: dict[NodeId, float] = {}
        self._unreached: dict[NodeId, float] = {}

    def begin(self, *, now: float) -> None:
        """Count from here on how long there is no hub."""
        self._alone_since = now

    def serve(self, node: NodeId, *, session: SessionId, since: int, addresses: tuple[str, ...]) -> None:
        """Be hub."""
        self.role, self._woke_at = "hub", None
        self._have_hub(node, session=session, since=since, addresses=addresses)

    def follow(self, hub: Hello) -> None:
        """The bus is connected to this hub."""
        self.role, self._woke_at = "following", None
        self._have_hub(hub.node, session=hub.hub_session, since=hub.hub_since, addresses=hub.hub_addresses)

    def hear(self, hub: Hello) -> bool:
        """Take over what the followed hub says of its session; tells whether that is another one."""
        changed = hub.hub_session != self.session
        self.session, self.since, self.addresses = hub.hub_session, hub.hub_since, hub.hub_addresses
        return changed

    def lose(self, *, since: float) -> None:
        """The connection to the hub is lost."""
        self.role, self._last_hub, self._alone_since = "lost", self.hub, since
        self.hub = NodeId("")
        self._waits = {}

    @property
    def is_alone(self) -> bool:
        """Whether there is no hub."""
        return self.role in {"starting", "lost"}

    def regain(self) -> None:
        """The same hub answers again."""
        self.role, self.hub = "following", self._last_hub
        self._waits = {}

    def begin_leaving(self) -> None:
        """Go on as before, but become hub no more."""
        self.stands = False

    def leave(self, successor: NodeId) -> None:
        """Go down; the office, if the node had it, goes to `successor`."""
        self.stands = False
        self.role, self.hub = "leaving", successor

    def wake(self, *, now: float) -> None:
        """The node found out that it had slept."""
        self._woke_at = now

    def miss(self, hub: NodeId, *, now: float) -> None:
        """The hub's message server did not answer at any address."""
        self._unreached[hub] = now

    def note(self, decision: Decision, *, now: float) -> None:
        """Keep why, and whom we wait for."""
        self.why = decision.why
        if isinstance(decision, Wait):
            # Waiting for something else starts a node's time anew.
            self._waits = self._waits | {decision.node: self._waits.get(decision.node, now)} if decision.node else {}
        else:
            self._waits = {node: since for node, since in self._waits.items() if now - since < STALE_WAIT}
            self._woke_at = None

    @property
    def last_hub(self) -> NodeId:
        """Whom a lost node followed."""
        return self._last_hub

    def view(
        self,
        own: Hello,
        reached: tuple[Hello, ...],
        *,
        now: float,
        grace: float = 0.0,
        hub_closed: bool = False,
        has_peers: bool = False,
        stored: SessionId,
    ) -> View:
        """Give what `decide` needs."""
        return View(
            own=own,
            reached=reached,
            now=now,
            alone_since=self._alone_since,
            grace=grace,
            last_hub=self._last_hub if self.role == "lost" else NodeId(""),
            hub_closed=hub_closed,
            woke_at=self._woke_at,
            has_peers=has_peers,
            waits=dict(self._waits),
            unreached=frozenset(hub for hub, at in self._unreached.items() if now - at < UNREACHED_FOR),
            stored=stored,
        )

    def _have_hub(self, node: NodeId, *, session: SessionId, since: int, addresses: tuple[str, ...]) -> None:
        self.hub, self.session, self.since, self.addresses = node, session, since, addresses
        self._waits = {}
