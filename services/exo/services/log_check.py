"""Whether the event log is the one that a State was folded from, and State anew when it is not.

Used by the projection whenever its connection has come back: the hub may be another one by then, with
a log that begins elsewhere.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from exo.broker.bus import Bus, StoredMessage, StreamInfo
from exo.broker.errors import NotFoundError
from exo.services.snapshots.store import load_snapshot
from exo.streams import subjects
from exo.streams.apply import apply
from exo.streams.codec import decode_event, hash_state
from exo.streams.events import EpochStarted
from exo.streams.ids import SessionId
from exo.streams.layout import EVENTS
from exo.streams.state import State

log = structlog.get_logger(__name__)

_BATCH = 1024
_AHEAD = 4


def read_epoch(message: StoredMessage | None) -> EpochStarted | None:
    """Give the epoch record that a message of the log holds."""
    if message is None:
        return None
    envelope = decode_event(message.payload, sequence=message.sequence).envelope
    return envelope.event if envelope and isinstance(envelope.event, EpochStarted) else None


async def is_continued(bus: Bus, state: State, *, info: StreamInfo, folded: StoredMessage | None) -> bool:
    """Whether the log goes on exactly where State stands.

    In the session of State it does, unless a crash of the machine took its end and others wrote another
    one: `folded`, the last message that was folded, must still be there. In another session it does
    only if that began with this very State.
    """
    if not info.first_sequence - 1 <= state.applied <= info.last_sequence:
        return False
    newest = read_epoch(await bus.get_last(EVENTS.name, subjects.EPOCH))
    session = newest.session if newest else SessionId("")
    if session == state.session:
        return await _is_there(bus, folded, info=info)
    following = await bus.read(EVENTS.name, subjects.EPOCH, start=state.applied + 1, limit=1)
    first = read_epoch(following[0]) if following else None
    if first is None or (first.session, first.base) != (session, state.applied):
        return False
    return first.state_hash == hash_state(state)


async def _is_there(bus: Bus, folded: StoredMessage | None, *, info: StreamInfo) -> bool:
    if folded is None or folded.sequence < info.first_sequence:
        return True
    found = await bus.read(EVENTS.name, subjects.EVENTS, start=folded.sequence, limit=1)
    return bool(found) and (found[0].sequence, found[0].payload) == (folded.sequence, folded.payload)


async def rebuild(bus: Bus, *, info: StreamInfo) -> tuple[State, StoredMessage | None]:
    """Give State at the log's end as `info` tells it, and the last message that was folded, if any.

    `NotFoundError` when the log is cut meanwhile.
    """
    state, last = await _find_start(bus, info), None
    async with aclosing(_read_on(bus, start=state.applied + 1, upto=info.last_sequence)) as batches:
        async for batch in batches:
            for message in batch:
                if message.sequence != state.applied + 1:
                    raise NotFoundError(f"the log goes on at {message.sequence} instead of {state.applied + 1}")
                state, last = apply(state, decode_event(message.payload, sequence=message.sequence)), message
    if state.applied < info.last_sequence:
        raise NotFoundError(f"the log ends at {state.applied}, not at {info.last_sequence}")
    return state, last


async def _read_on(bus: Bus, *, start: int, upto: int) -> AsyncGenerator[list[StoredMessage]]:
    """Give the log in pieces up to a sequence; the next ones come while one is folded."""
    coming: deque[asyncio.Task[list[StoredMessage]]] = deque()
    try:
        while coming or start <= upto:
            while start <= upto and len(coming) < _AHEAD:
                size = min(_BATCH, upto - start + 1)
                coming.append(asyncio.create_task(bus.read(EVENTS.name, subjects.EVENTS, start=start, limit=size)))
                start += size
            yield await coming.popleft()
    finally:
        for task in coming:
            task.cancel()
        await asyncio.gather(*coming, return_exceptions=True)


async def _find_start(bus: Bus, info: StreamInfo) -> State:
    snapshot = await load_snapshot(bus)
    before_log = max(info.first_sequence - 1, 0)
    if snapshot is not None and before_log <= snapshot.applied <= info.last_sequence:
        return snapshot
    if before_log and info.messages:
        log.error("the log has no beginning and no snapshot fits: what was before is lost", first=before_log + 1)
    return State(applied=before_log)
