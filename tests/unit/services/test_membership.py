"""Joining, being present, reporting, leaving."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from exo.broker.memory import MemoryBus
from exo.services.clock import FakeClock, SystemClock
from exo.services.journal import Journal
from exo.services.membership import Membership
from exo.services.projection import Projection
from exo.services.standby import begin_session
from exo.streams import events as e
from exo.streams.codec import decode_event, encode
from exo.streams.downloads import ModelReport
from exo.streams.ids import RunnerId, SessionId, TaskId
from exo.streams.instances import Ready
from exo.streams.layout import EVENTS, NODES, PRESENCE_TTL
from exo.streams.nodes import RunnerReport
from exo.streams.state import State
from support.links import MovableBus
from support.services import BOOT, NODE, NOW, eventually, make_card, make_facts

REPORT = RunnerReport(runner=RunnerId("r"), status=Ready(), tasks=(TaskId("t"),))
HELD = ModelReport(card=make_card(), status="complete")


class Node:
    """A membership with all that it needs."""

    def __init__(self) -> None:
        self.bus, self.clock = MovableBus(), FakeClock()
        self.projection = Projection(self.bus)
        self.journal = Journal(self.bus, clock=SystemClock(), node=NODE, boot=BOOT)
        self.events: list[e.Event] = []
        self.projection.on_event(self._note)
        self.membership = Membership(
            self.bus,
            projection=self.projection,
            journal=self.journal,
            node=NODE,
            boot=BOOT,
            facts=make_facts(),
            runners=lambda: (REPORT,),
            models=lambda: (HELD,),
            clock=self.clock,
        )

    def _note(self, recorded: e.Recorded, _state: object) -> None:
        assert recorded.envelope is not None
        self.events.append(recorded.envelope.event)

    async def present(self) -> bool:
        return await self.bus.get(NODES.name, NODE) is not None

    async def decide(self, event: e.Event) -> None:
        """Write as a master would."""
        envelope = e.Envelope(id="x", at=NOW, actor=NODE, boot=BOOT, epoch=1, event=event)
        await self.bus.append(e.subject_of_event(event), encode(envelope))

    async def folded(self) -> None:
        await self.journal.drain(timeout=5)
        last = (await self.bus.stream_info("EXO_EVENTS")).last_sequence
        await self.projection.wait(lambda state: state.applied >= last, timeout=5)
        await self.journal.drain(timeout=5)


@asynccontextmanager
async def joined() -> AsyncGenerator[Node]:
    node = Node()
    runs = (node.projection.run, node.journal.run, node.membership.run)
    tasks = [asyncio.create_task(run()) for run in runs[:2]]
    await node.projection.caught_up(timeout=5)
    await node.membership.join()
    tasks.append(asyncio.create_task(runs[2]()))
    await node.folded()
    try:
        yield node
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def epoch(number: int) -> e.EpochStarted:
    return e.EpochStarted(session=SessionId("s"), epoch=number, base=0, state_hash="", master=NODE)


def names(events: list[e.Event]) -> list[str]:
    return [type(event).__name__ for event in events]


async def test_a_node_joins_and_reports_what_it_has() -> None:
    async with joined() as node:
        assert names(node.events) == ["NodeJoined", "NodeReported"]
        record = node.projection.state.nodes[NODE]
        assert (record.online, record.boot, record.facts, record.models) == (True, BOOT, make_facts(), (HELD,))
        assert await node.present()


async def test_presence_is_renewed_before_it_ends() -> None:
    async with joined() as node:
        for _ in range(5):
            node.bus.server.advance(PRESENCE_TTL - 1)
            await node.clock.advance(PRESENCE_TTL - 1)
            assert await node.present()


async def test_presence_is_renewed_as_soon_as_the_broker_is_back() -> None:
    async with joined() as node:
        node.bus.disconnect()
        await node.clock.advance(10)
        node.bus.server.lose_memory()
        node.bus.reconnect()
        await eventually(node.present, what="presence")


@pytest.mark.parametrize(("epochs", "reports"), [((1,), 1), ((1, 2), 2), ((1, 1), 1)])
async def test_each_epoch_gets_one_report(epochs: tuple[int, ...], reports: int) -> None:
    async with joined() as node:
        node.events.clear()
        for number in epochs:
            await node.decide(epoch(number))
            await node.folded()
        await node.folded()
        assert names(node.events).count("NodeReported") == reports


async def test_a_node_that_was_given_up_joins_again() -> None:
    async with joined() as node:
        await node.decide(e.NodeTimedOut(node=NODE))
        await node.folded()
        await node.folded()
        assert names(node.events)[-3:] == ["NodeTimedOut", "NodeJoined", "NodeReported"]
        assert node.projection.state.nodes[NODE].online


async def test_a_session_that_does_not_know_the_node_is_joined_anew_after_what_is_queued() -> None:
    async with joined() as node:
        await node.decide(epoch(1))
        await node.folded()
        node.bus.disconnect()
        node.journal.record(e.ModelsReported(node=NODE, models=()))
        other = MemoryBus()
        standby = State(session=SessionId("other"))
        await begin_session(other, standby, session=SessionId("next"), node=NODE, boot=BOOT, clock=SystemClock())
        node.bus.move(other.server)
        await node.projection.wait(lambda state: state.session == "next" and NODE in state.nodes, timeout=5)
        await node.folded()
        messages = await other.read(EVENTS.name, "exo.events.>")
        kinds = [decode_event(message.payload, sequence=message.sequence).envelope for message in messages]
        assert names([kind.event for kind in kinds if kind]) == [
            "EpochStarted",
            "ModelsReported",
            "NodeJoined",
            "NodeReported",
        ]
        assert node.projection.state.nodes[NODE].strays == (REPORT,)


async def test_a_report_says_what_the_runners_work_on() -> None:
    async with joined() as node:
        reports = [event for event in node.events if isinstance(event, e.NodeReported)]
        assert [report.tasks for report in reports] == [REPORT.tasks]


async def test_leaving_is_the_last_word() -> None:
    async with joined() as node:
        await node.membership.leave()
        await node.decide(epoch(1))
        await node.folded()
        await node.clock.advance(10)
        assert names(node.events) == ["NodeJoined", "NodeReported", "NodeLeft", "EpochStarted"]
        assert not await node.present()
        assert node.projection.state.nodes[NODE].cause == "left"


async def test_leaving_without_a_broker_does_not_fail() -> None:
    async with joined() as node:
        node.bus.disconnect()
        await node.membership.leave()
        node.bus.reconnect()
        await node.folded()
        assert names(node.events)[-1] == "NodeLeft"
