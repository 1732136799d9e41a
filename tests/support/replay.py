"""The event log as anybody with the reader's key sees it, folded anew: what every node should have come to."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from exo.broker.bus import Bus
from exo.broker.context import read_address
from exo.broker.credentials import Credentials
from exo.broker.nats_bus import NatsBus
from exo.broker.permissions import READER, inbox_of
from exo.services.snapshots.store import load_snapshot
from exo.streams import subjects
from exo.streams.apply import apply
from exo.streams.codec import decode_event, encode
from exo.streams.layout import EVENTS
from exo.streams.state import State
from support.many_nodes import CLUSTER, Member, Members

_PAGE = 512
_ROUNDS = 20


@asynccontextmanager
async def tapping(node: Member, *, role: str = READER, credentials: Credentials | None = None) -> AsyncGenerator[Bus]:
    """Connect to the broker that a node is connected to, past all cables when it is on a host.

    Without `credentials` as the CLI does, or for another role than its with those of the open cluster.
    """
    address = read_address(node.data / "nats")
    assert address is not None, f"{node.name} has no broker"
    settings = address.to_settings(f"test-{role}")
    if role != READER or credentials is not None:
        seed = (credentials or Credentials(CLUSTER)).seed(role)
        settings = replace(settings, seed=seed, inbox=inbox_of(role))
    if node.host is not None:
        scheme, _, place = settings.url.partition("://")
        host, _, port = place.rpartition(":")
        settings = replace(settings, url=f"{scheme}://{node.host.open_way(int(port), host=host)}")
    async with NatsBus(settings) as bus:
        yield bus


async def replay(bus: Bus) -> State:
    """Fold the log as a node would that has just joined: the snapshot, then every event after it."""
    info = await bus.stream_info(EVENTS.name)
    state = await load_snapshot(bus) or State(applied=info.first_sequence - 1)
    assert state.applied >= info.first_sequence - 1, "the log begins behind the snapshot"
    while state.applied < info.last_sequence:
        page = await bus.read(EVENTS.name, subjects.EVENTS, start=state.applied + 1, limit=_PAGE)
        assert page, f"the log ends at {state.applied}, before {info.last_sequence}"
        for message in page:
            assert message.sequence == state.applied + 1, "the log has a gap"
            state = apply(state, decode_event(message.payload, sequence=message.sequence))
    return state


async def check_replay(members: Members) -> dict[str, Any]:
    """Hold the log against every node: it folds to what each of them says. Gives that State."""
    hub = await asyncio.to_thread(members.wait_hub)
    async with tapping(hub) as bus:
        for _ in range(_ROUNDS):
            agreed = await asyncio.to_thread(members.wait_agreement)
            folded: dict[str, Any] = msgspec.json.decode(encode(await replay(bus)))
            # Else something was written in between.
            if folded["applied"] == agreed["applied"]:
                assert folded == agreed
                return agreed
    raise AssertionError(f"the log is never at rest\n{members.logs()}")
