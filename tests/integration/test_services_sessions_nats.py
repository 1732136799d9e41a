"""A hub that moves on real nats-servers, with the rights that nodes and masters have there."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from exo.broker.bus import Bus
from exo.broker.hub import Hub, HubSettings
from exo.broker.nats_bus import NatsBus
from exo.broker.permissions import MASTER, node_role
from exo.services.clock import SystemClock
from exo.services.standby import begin_session
from exo.streams.apply import apply
from exo.streams.chunks import Done
from exo.streams.codec import decode_event
from exo.streams.ids import SessionId
from exo.streams.layout import EVENTS, LEASE
from exo.streams.state import State
from support.links import Sight
from support.nats import CREDENTIALS
from support.services import BOOT, NODE, Cluster, eventually, scripted

SLOW = {"tokens_per_second": 100.0}
TEXT = " ".join(f"word{number}" for number in range(80))


class NatsLink(Sight):
    """This node as the hub of one server after the other."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self._server = hub
        self.bus = NatsBus(hub.connection_settings(node_role(NODE), name=NODE))
        self.is_hub = True
        self.hub = NODE
        self._listeners: list[Callable[[], None]] = []
        self._masters: list[NatsBus] = []

    def on_move(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def open_master_bus(self) -> Bus:
        bus = NatsBus(self._server.connection_settings(MASTER, name="master"))
        await bus.open()
        self._masters.append(bus)
        return bus

    async def move(self, hub: Hub) -> None:
        self._server = hub
        for bus in self._masters:
            await bus.close()
        await self.bus.connection.move(hub.connection_settings(node_role(NODE), name=NODE))
        for listener in tuple(self._listeners):
            listener()


def hub_at(directory: Path, *, base: int = 0) -> Hub:
    settings = HubSettings(directory=directory, name="test", first_sequence=base + 1, nodes=(NODE,))
    return Hub(settings, credentials=CREDENTIALS)


async def read_state(hub: Hub, *, start: State, upto: int) -> State:
    """Fold what a server's log holds up to a sequence."""
    state = start
    for message in await hub.bus.read(EVENTS.name, "exo.events.>", start=start.applied + 1, limit=upto - start.applied):
        state = apply(state, decode_event(message.payload, sequence=message.sequence))
    return state


async def begin(hub: Hub, state: State, session: str) -> None:
    await begin_session(hub.bus, state, session=SessionId(session), node=NODE, boot=BOOT, clock=SystemClock())


async def test_answers_and_state_come_through_hubs_that_die_one_after_the_other(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        hub, base = await stack.enter_async_context(hub_at(tmp_path / "hub-0")), State()
        await begin(hub, base, "session-0")
        link = NatsLink(hub)
        await link.bus.open()
        stack.push_async_callback(link.bus.close)
        cluster = await stack.enter_async_context(Cluster(link.bus, scripted(tmp_path, SLOW), link=link))
        await cluster.place()
        (pid,) = cluster.services.worker.process_ids()
        for number, lost in enumerate((0, 1, 3), start=1):
            answer = await cluster.submit(f"[[say:{TEXT}]]")
            await answer.has(5)
            last = (await hub.bus.stream_info(EVENTS.name)).last_sequence
            # What the end of the log held beyond this was never seen by the one who is next.
            base = await read_state(hub, start=base, upto=last - min(lost, last - base.applied - 1))
            await hub.stop()
            hub = await stack.enter_async_context(hub_at(tmp_path / f"hub-{number}", base=base.applied))
            await begin(hub, base, f"session-{number}")
            await link.move(hub)
            state = await cluster.wait(lambda state, session=f"session-{number}": state.session == session)
            assert state.lineage[-1] == f"session-{number - 1}"
            if answer.task not in state.tasks:
                await cluster.resume(answer, next(iter(state.instances)))
            assert isinstance(await answer.end(), Done)
            assert answer.text() == TEXT
            await cluster.wait(lambda state, task=answer.task: state.ended_tasks.get(task))
        assert list(cluster.services.worker.process_ids()) == [pid]
        assert {ended.outcome for _, ended in cluster.state.ended_tasks.items()} == {"finished"}
        await compare(hub, cluster, base)


async def compare(hub: Hub, cluster: Cluster, base: State) -> None:
    async def is_folded() -> bool:
        return cluster.state.applied == (await hub.bus.stream_info(EVENTS.name)).last_sequence

    await eventually(is_folded, what="the whole log")
    assert cluster.state == await read_state(hub, start=base, upto=cluster.state.applied)


async def holds_no_lease(hub: Hub) -> bool:
    return not await hub.bus.keys(LEASE.name)


async def test_a_hub_that_was_left_gets_no_decision_any_more(tmp_path: Path) -> None:
    async with hub_at(tmp_path / "old") as old:
        await begin(old, State(), "session-0")
        link = NatsLink(old)
        await link.bus.open()
        async with Cluster(link.bus, scripted(tmp_path), link=link) as cluster:
            await cluster.wait(lambda state: state.epoch == 2)
            base = cluster.state
            async with hub_at(tmp_path / "new", base=base.applied) as new:
                await begin(new, base, "session-1")
                await link.move(new)
                await cluster.wait(lambda state: (state.session, state.epoch) == ("session-1", 4))
                left = (await old.bus.stream_info(EVENTS.name)).last_sequence
                await cluster.place()
                # It serves on, and nobody of ours writes to it.
                assert (await old.bus.stream_info(EVENTS.name)).last_sequence == left
                await eventually(lambda: holds_no_lease(old), what="the end of the lease there")
                await cluster.services.stop(grace=0)
        await link.bus.close()
