"""A cluster without sockets: nodes that exchange Hellos over links that can be cut, and perform what is decided.

Every node runs the real `decide` and the real `Situation`; servers, logs and clocks are a few lines here.
"""

from collections.abc import Iterable
from itertools import count

from exo.broker.arbitration import Follow, Keep, Resume, Serve, Yield, choose_successor, decide
from exo.broker.hello import SILENCE, Hello, Position
from exo.broker.situation import Situation
from exo.streams.ids import BootId, NodeId, SessionId

STEP = 0.1
PROBE = 1.0


class Log:
    """A hub's event log."""

    def __init__(self, session: str, *, base: int) -> None:
        self.session, self.base, self.last = SessionId(session), base, base + 1


class SimulatedNode:
    """One node. `heard` holds the newest Hello of each other and when it came; `closed` who hung up."""

    def __init__(self, name: str, *, now: float, number: int) -> None:
        self.name = NodeId(name)
        self.started_at = number
        self.heard: dict[NodeId, tuple[float, Hello]] = {}
        self.closed: set[NodeId] = set()
        self.alive = True
        self.asleep_until = 0.0
        self.position = Position()
        self.log: Log | None = None
        self.stored: Log | None = None
        self.since = 0
        self.situation = Situation(now=now)
        self.present = 1

    def hello(self) -> Hello:
        situation = self.situation
        hub = situation.hub
        return Hello(
            node=self.name,
            boot=BootId(self.name),
            name=self.name,
            version="1",
            started_at=self.started_at,
            role=situation.role,
            position=self.position,
            hub=hub,
            hub_since=situation.since,
            hub_session=situation.session if hub else SessionId(""),
            hub_addresses=situation.addresses if hub else (),
            present=self.present if situation.role == "hub" else 0,
            stands=situation.stands,
        )

    def list_reached(self, now: float) -> list[Hello]:
        return [hello for node, (at, hello) in self.heard.items() if now - at < SILENCE and node not in self.closed]


class World:
    """Everything; `step` is a tenth of a second."""

    def __init__(self, names: Iterable[str]) -> None:
        self.now = 0.0
        self._sessions = count(1)
        self.nodes = {name: SimulatedNode(name, now=0.0, number=number) for number, name in enumerate(names)}
        self.cut: set[frozenset[str]] = set()
        self.unfit: set[str] = set()
        """Nodes whose server does not start, though they say that they have no hub."""

    # What happens to it.

    def cut_link(self, one: str, other: str) -> None:
        self.cut.add(frozenset((one, other)))

    def heal(self) -> None:
        self.cut.clear()

    def kill(self, name: str) -> None:
        """A process dies: whoever reaches it sees its connections close."""
        node = self.nodes[name]
        node.alive, node.log = False, None
        for other in self.nodes.values():
            if self.connected(name, other.name):
                other.closed.add(node.name)

    def start(self, name: str) -> None:
        old = self.nodes[name]
        node = SimulatedNode(name, now=self.now, number=1000 + int(self.now * 10))
        node.position, node.stored = old.position, old.stored
        self.nodes[name] = node

    def sleep(self, name: str, seconds: float) -> None:
        self.nodes[name].asleep_until = self.now + seconds

    def leave(self, name: str) -> None:
        """Stop in good order, as far as the Hello goes; the process ends at the next `kill`."""
        node = self.nodes[name]
        followers = [hello for hello in node.list_reached(self.now) if hello.hub == node.name]
        node.situation.leave(choose_successor(followers) if node.situation.role == "hub" else NodeId(""))

    def write(self, name: str) -> None:
        """A fact is appended to the log that the node is connected to."""
        log = self._find_log(self.nodes[name])
        if log is not None:
            log.last += 1

    # How it goes on.

    def connected(self, one: str, other: str) -> bool:
        return one == other or frozenset((one, other)) not in self.cut

    def runs(self, node: SimulatedNode) -> bool:
        return node.alive and self.now >= node.asleep_until

    def step(self) -> None:
        self.now = round(self.now + STEP, 3)
        running = [node for node in self.nodes.values() if self.runs(node)]
        for node in running:
            if node.asleep_until:
                node.asleep_until = 0.0
                if node.situation.role == "hub":
                    node.situation.wake(now=self.now)
        self._exchange(running)
        for node in running:
            self._apply(node)
            self._act(node)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.step()

    def _exchange(self, running: list[SimulatedNode]) -> None:
        said = {node.name: node.hello() for node in running}
        for node in running:
            for name, hello in said.items():
                if name != node.name and self.connected(name, node.name):
                    node.heard[name] = (self.now, hello)
                    node.closed.discard(name)
            node.present = 1 + sum(hello.hub == node.name for hello in node.list_reached(self.now))

    def _find_log(self, node: SimulatedNode) -> Log | None:
        """The log behind the node's bus, if that answers."""
        hub = self.nodes.get(node.situation.hub or node.situation.last_hub)
        if hub is None or not self.runs(hub) or not self.connected(node.name, hub.name):
            return None
        return hub.log if hub.log is not None and hub.log.session == node.situation.session else None

    def _apply(self, node: SimulatedNode) -> None:
        log = self._find_log(node)
        if log is None or node.situation.role not in {"hub", "following", "leaving"}:
            return
        own = node.position
        if own.session == log.session:
            node.position = Position(session=own.session, applied=log.last, lineage=own.lineage)
        else:
            lineage = (*own.lineage, own.session) if own.session else own.lineage
            node.position = Position(session=log.session, applied=log.last, lineage=lineage)

    def _observe(self, node: SimulatedNode) -> None:
        situation, log = node.situation, self._find_log(node)
        if situation.role == "following" and log is None:
            hub = self.nodes[situation.hub]
            silent_since = node.heard[hub.name][0] if hub.name in node.heard else self.now
            if hub.name in node.closed or (self.runs(hub) and self.connected(node.name, hub.name)):
                situation.lose(since=self.now)
            elif self.now - silent_since > SILENCE + PROBE:
                situation.lose(since=silent_since)
        elif situation.role == "lost" and log is not None:
            situation.regain()

    def _act(self, node: SimulatedNode) -> None:
        if node.situation.role == "leaving":
            return
        self._observe(node)
        situation = node.situation
        view = situation.view(
            node.hello(),
            tuple(node.list_reached(self.now)),
            now=self.now,
            grace=1.0,
            hub_closed=situation.last_hub in node.closed,
            has_peers=bool(node.heard),
            stored=node.stored.session if node.stored is not None else SessionId(""),
        )
        decision = decide(view)
        situation.note(decision, now=self.now)
        match decision:
            case Follow(hub=hub) | Yield(hub=hub):
                self._follow(node, hub)
            case Serve():
                self._serve(node, Log(f"s{next(self._sessions)}", base=node.position.applied))
            case Resume():
                assert node.stored is not None
                self._serve(node, node.stored)
            case Keep() if situation.role == "following":
                self._hear(node)
            case _:
                return

    def _hear(self, node: SimulatedNode) -> None:
        hub = self.nodes[node.situation.hub]
        if hub.log is not None and self.connected(node.name, hub.name) and hub.situation.role == "hub":
            node.situation.hear(hub.hello())

    def _follow(self, node: SimulatedNode, hello: Hello) -> None:
        hub = self.nodes[hello.node]
        if hub.log is None or not self.runs(hub) or not self.connected(node.name, hub.name):
            return
        if hub.situation.role != "hub":
            return
        node.situation.follow(hub.hello())
        node.log = node.stored = None

    def _serve(self, node: SimulatedNode, log: Log) -> None:
        assert node.situation.stands, f"{node.name} is stopping and became hub"
        if node.name in self.unfit:
            return
        node.log = node.stored = log
        node.since = node.since if node.position.session == log.session else int(self.now * 1000)
        addresses = (f"{node.name}:1",)
        node.situation.serve(node.name, session=log.session, since=node.since, addresses=addresses)

    # What came of it.

    def list_hubs(self) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if node.alive and node.situation.role == "hub"]

    def is_agreed(self) -> bool:
        """One hub, followed by all others in its one session."""
        alive = [node for node in self.nodes.values() if node.alive]
        hubs = self.list_hubs()
        return len(hubs) == 1 and all(
            node.situation.hub == hubs[0].name
            and node.situation.role in {"hub", "following"}
            and node.position.session == hubs[0].situation.session
            for node in alive
        )
