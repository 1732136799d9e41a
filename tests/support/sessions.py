"""Two nodes over in-memory hubs that die, with or without the end of their log, and move."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from exo.broker.memory import MemoryBus
from exo.broker.memory_server import MemoryServer
from exo.services.clock import SystemClock
from exo.services.standby import begin_session
from exo.streams import subjects
from exo.streams.apply import apply
from exo.streams.codec import decode_event
from exo.streams.ids import BootId, InstanceId, NodeId, SessionId, new_session_id
from exo.streams.layout import EVENTS
from exo.streams.state import Receipt, State
from support.links import MovingLink, make_server
from support.services import Answer, Cluster, eventually, scripted

HUB, WORKER = NodeId("node-a"), NodeId("node-b")


def replay(server: MemoryServer, *, upto: int, start: State | None = None) -> State:
    """State after the events of a log up to a sequence."""
    state = start or State()
    for message in server.stream(EVENTS.name).messages:
        if state.applied < message.sequence <= upto:
            state = apply(state, decode_event(message.payload, sequence=message.sequence))
    return state


class Pair:
    """`hub` takes requests and rules, `worker` has the runners."""

    def __init__(self, directory: Path, script: dict[str, float]) -> None:
        self.server = MemoryServer()
        self.base = State()
        """What the log of `server` stands upon."""
        self.session = SessionId("")
        self.links = {node: MovingLink(self.server, node, hub=HUB) for node in (HUB, WORKER)}
        self.hub = self._node(directory / "a", HUB, script, worker=False)
        self.worker = self._node(directory / "b", WORKER, script)

    def _node(self, directory: Path, node: NodeId, script: dict[str, float], **changes: Any) -> Cluster:
        settings = scripted(directory, script, node=node, boot=BootId(f"boot-{node}"), **changes)
        return Cluster(self.links[node].bus, settings, link=self.links[node])

    @property
    def last(self) -> int:
        """The newest sequence of the log."""
        return self.server.stream(EVENTS.name).last_sequence

    def lose_hub(self) -> None:
        for link in self.links.values():
            link.lose()

    async def move(self, *, lost: int = 0) -> None:
        """A node whose State lacks the newest `lost` events begins a session; both nodes go there."""
        self.lose_hub()
        await self.move_to(replay(self.server, upto=self.last - lost, start=self.base))

    async def move_to(self, state: State) -> None:
        """Go over to a hub that begins with this State."""
        self.server = make_server(base=state.applied)
        self.base = state
        self.session = new_session_id()
        bus, boot = MemoryBus(self.server), BootId(f"boot-{HUB}")
        await begin_session(bus, state, session=self.session, node=HUB, boot=boot, clock=SystemClock())
        for link in self.links.values():
            link.move(self.server, hub=HUB)

    async def resume(self, answer: Answer, instance: InstanceId, *, admitted: bool = True) -> Receipt | None:
        """Do what a gateway does when State has lost a request."""
        state = await self.hub.wait(lambda state: state.session == self.session)
        if answer.task in state.tasks or state.ended_tasks.get(answer.task) is not None:
            return None
        if not admitted:
            await self.hub.bus.append(subjects.request(answer.task), answer.body)
        return await self.hub.resume(answer, instance, admitted=admitted)

    async def agree(self) -> State:
        """Wait until both nodes have folded the whole log, and compare with a replay of it."""

        async def is_folded() -> bool:
            return self.hub.state.applied == self.worker.state.applied == self.last

        await eventually(is_folded, what="one State")
        expected = replay(self.server, upto=self.last, start=self.base)
        assert self.hub.state == self.worker.state == expected
        return expected


@asynccontextmanager
async def running_pair(directory: Path, script: dict[str, float]) -> AsyncGenerator[Pair]:
    pair = Pair(directory, script)
    async with pair.hub, pair.worker:
        yield pair
