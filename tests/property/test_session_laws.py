"""Laws of sessions: whatever end of the log a hub takes with it, all nodes come to one State."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from exo.broker.memory import MemoryBus
from exo.broker.memory_server import MemoryServer
from exo.services.projection import Projection
from exo.streams import events as e
from exo.streams.codec import encode
from exo.streams.ids import BootId, NodeId, SessionId, TaskId
from exo.streams.layout import EVENTS
from exo.streams.state import State
from exo.streams.views import is_descendant
from support.links import MovableBus, make_server
from support.services import BOOT, NODE, NOW, make_facts
from support.sessions import replay

NODES = 3
TIMEOUT = 10


class Follower:
    """A node that only follows, and what it was told of sessions."""

    def __init__(self, number: int, server: MemoryServer) -> None:
        self.bus = MovableBus(server)
        self.projection = Projection(self.bus, node=NodeId(f"node-{number}"), boot=BootId(f"boot-{number}"))
        self.told: list[tuple[str, str, bool]] = []
        self.projection.on_session(self._note)
        self.task = asyncio.create_task(self.projection.run())

    def _note(self, old: State, new: State) -> None:
        assert new == self.projection.state
        self.told.append((old.session, new.session, is_descendant(new, old.session)))

    async def reaches(self, sequence: int, session: str) -> None:
        await self.projection.wait(lambda state: (state.session, state.applied) == (session, sequence), timeout=TIMEOUT)


def write(server: MemoryServer, count: int, *, label: str) -> int:
    """Append events that each change State; gives the last sequence."""
    for number in range(count):
        event: e.Event = e.TaskCancelled(task=TaskId(f"{label}-{number}"), reason=label)
        if number % 3 == 0:
            event = e.NodeJoined(node=NODE, facts=make_facts(name=f"{label}-{number}"))
        envelope = e.Envelope(id=f"{label}-{number}", at=NOW, actor=NODE, boot=BOOT, event=event)
        server.append(e.subject_of_event(event), encode(envelope), headers={})
    return server.stream(EVENTS.name).last_sequence


@asynccontextmanager
async def followers(server: MemoryServer) -> AsyncGenerator[list[Follower]]:
    nodes = [Follower(number, server) for number in range(NODES)]
    try:
        for node in nodes:
            await node.projection.caught_up(timeout=TIMEOUT)
        yield nodes
    finally:
        for node in nodes:
            node.task.cancel()
        await asyncio.gather(*(node.task for node in nodes), return_exceptions=True)


Moves = st.lists(
    st.tuples(
        st.lists(st.integers(0, 6), min_size=NODES, max_size=NODES),
        st.integers(0, NODES - 1),
        st.integers(0, 4),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=40, deadline=None)
@given(moves=Moves)
def test_all_nodes_end_equal_to_a_replay_however_much_a_hub_took_with_it(
    moves: list[tuple[list[int], int, int, bool]],
) -> None:
    asyncio.run(play(moves))


async def play(moves: list[tuple[list[int], int, int, bool]]) -> None:
    """Each move: how far each node gets before the hub dies, who is next, what follows, and whether another hub
    is between that only some see."""
    server = make_server()
    standby = Projection(MemoryBus(server), node=NODE, boot=BOOT)
    await standby.inaugurate(MemoryBus(server), SessionId("s-0"))
    base, last = State(), 0
    async with followers(server) as nodes:
        for number, (reached, successor, more, is_skipped) in enumerate(moves, start=1):
            await let_them_lag(server, nodes, reached, label=f"l{number}")
            heir = nodes[successor]
            base = heir.projection.state
            server = make_server(base=base.applied)
            session = SessionId(f"s-{number}")
            await heir.projection.inaugurate(MemoryBus(server), session)
            last = write(server, more, label=f"m{number}")
            for node in nodes:
                if not (is_skipped and node is nodes[successor - 1]):
                    node.bus.move(server)
            for node in nodes:
                if node.bus.server is server:
                    await node.reaches(last, session)
        expected = replay(server, upto=last, start=base)
        for node in nodes:
            if node.bus.server is not server:
                node.bus.move(server)
            await node.reaches(last, expected.session)
            assert node.projection.state == expected
            # Only an heir that missed a session can begin one that does not continue it.
            assert all(descends for _, _, descends in node.told) or any(move[3] for move in moves)
            assert node.told[-1][1] == expected.session


async def let_them_lag(server: MemoryServer, nodes: list[Follower], reached: list[int], *, label: str) -> None:
    """Write events; each node loses its hub after another number of them."""
    for step in range(max(reached) + 1):
        for node, limit in zip(nodes, reached, strict=True):
            if limit == step and node.bus.connected and node.bus.server is server:
                await node.projection.wait(
                    lambda state: state.applied >= server.stream(EVENTS.name).last_sequence, timeout=TIMEOUT
                )
                node.bus.disconnect()
        write(server, 1, label=f"{label}-{step}")
    for node in nodes:
        if node.bus.connected:
            node.bus.disconnect()
