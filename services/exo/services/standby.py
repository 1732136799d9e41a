"""Beginning a session from the State of this node: what makes every follower a standby.

`Projection` fulfils the broker's `Standby` with it, `exo.broker.cluster` calls that when this node
becomes the hub.
"""

import structlog

from exo.broker.bus import Bus
from exo.broker.errors import ConflictError
from exo.services.clock import Clock
from exo.services.journal import append_event
from exo.services.log_check import read_epoch
from exo.services.snapshots.store import save_snapshot
from exo.streams.codec import hash_state
from exo.streams.envelope import headers_of_epoch
from exo.streams.events import Envelope, EpochStarted
from exo.streams.ids import BootId, NodeId, SessionId
from exo.streams.layout import EVENTS
from exo.streams.state import State
from exo.streams.subjects import EPOCH

log = structlog.get_logger(__name__)


async def begin_session(
    bus: Bus, state: State, *, session: SessionId, node: NodeId, boot: BootId, clock: Clock
) -> None:
    """Store State as the snapshot that the log's first record, the epoch of this session, stands upon.

    Does nothing when the session has begun already; `ConflictError` when the log is not empty or does not
    begin right after State.
    """
    begun = read_epoch(await bus.get_last(EVENTS.name, EPOCH))
    if begun is not None and begun.session == session:
        return
    info = await bus.stream_info(EVENTS.name)
    if info.messages or info.last_sequence != state.applied:
        reason = f"the log ends at {info.last_sequence} with {info.messages} messages, State stands at {state.applied}"
        raise ConflictError(f"session {session} cannot begin: {reason}")
    await save_snapshot(bus, state)
    event = EpochStarted(
        session=session,
        epoch=state.epoch + 1,
        base=state.applied,
        state_hash=hash_state(state),
        master=node,
    )
    envelope = Envelope(id=f"{boot}-{session}", at=clock.now(), actor=node, boot=boot, epoch=event.epoch, event=event)
    await append_event(bus, envelope, headers_of_epoch(envelope.id, last_epoch_sequence=0), clock=clock)
    log.info("a session begins", session=session, base=event.base, epoch=event.epoch, before=state.session)
