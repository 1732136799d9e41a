"""Links between nodes that really talk: two cluster ports on loopback, measured and told."""

import asyncio

from exo.broker.memory import MemoryBus
from exo.services.clock import SystemClock
from exo.services.journal import Journal
from exo.services.links.prober import LinkProber
from exo.services.links.service import Links
from exo.services.projection import Projection
from exo.streams.codec import encode
from exo.streams.events import Envelope, EpochStarted, NodeJoined, subject_of_event
from exo.streams.ids import BootId, NodeId, SessionId
from exo.streams.state import State
from exo.streams.views import link_between
from support.peers import address_of, make_settings, running_peers
from support.services import eventually, make_facts

A, B = NodeId("a"), NodeId("b")


async def write(bus: MemoryBus, *events: EpochStarted | NodeJoined) -> None:
    for number, event in enumerate(events):
        actor = event.node if isinstance(event, NodeJoined) else A
        envelope = Envelope(
            id=f"{type(event).__name__}-{number}-{actor}", at=1, actor=actor, boot=BootId(f"of-{actor}"), event=event
        )
        await bus.append(subject_of_event(event), encode(envelope))


async def test_two_nodes_measure_what_connects_them() -> None:
    bus, clock = MemoryBus(), SystemClock()
    projection = Projection(bus, clock=clock)
    journal = Journal(bus, clock=clock, node=A, boot=BootId("of-a"))
    await write(
        bus,
        EpochStarted(session=SessionId("s"), epoch=1, base=0, state_hash="", master=A),
        NodeJoined(node=A, facts=make_facts()),
        NodeJoined(node=B, facts=make_facts()),
    )
    async with (
        running_peers(make_settings("b")) as other,
        running_peers(make_settings("a", bootstrap=(address_of(other),))) as peers,
    ):

        async def met() -> bool:
            return B in peers.reached()

        await eventually(met, what="the meeting of both")
        prober: LinkProber = peers
        links = Links(bus, prober=prober, projection=projection, journal=journal, node=A, clock=clock)
        tasks = [asyncio.create_task(work) for work in (projection.run(), journal.run())]
        await projection.caught_up(timeout=10)
        tasks.append(asyncio.create_task(links.run()))
        try:
            state = await projection.wait(_has_link, timeout=30)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    link = link_between(state, A, B)
    assert link is not None
    assert (link.kind, link.remote_address) == ("loopback", "127.0.0.1")
    assert 0 < link.latency < 1
    assert link.bandwidth > 1_000_000


def _has_link(state: State) -> bool:
    return link_between(state, A, B) is not None
