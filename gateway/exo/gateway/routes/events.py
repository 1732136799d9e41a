"""The event log: a page of it as an array, or followed as server-sent events.

An event's place is `session.sequence`. A place before the log's beginning answers 410: whoever asks
has missed events for good and reads `/state` anew.
"""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from litestar import Request, get
from litestar.params import QueryParameter
from litestar.types import ASGIApp

from exo.broker.bus import StoredMessage
from exo.broker.errors import NotFoundError
from exo.gateway.bodies import invalid
from exo.gateway.errors import GatewayError
from exo.gateway.gateway import Gateway, Here
from exo.gateway.responses import raw_json
from exo.gateway.sse import encode_event
from exo.streams import subjects
from exo.streams.codes import Code
from exo.streams.layout import EVENTS

MOST_EVENTS = 10_000
_PAGE = 512


@get("/events", summary="The event log")
async def get_events(
    request: Request[Any, Any, Any],
    gateway: Here,
    after: Annotated[str, QueryParameter(description="A sequence or `session.sequence`; events behind it")] = "",
    limit: Annotated[int, QueryParameter(ge=1, le=MOST_EVENTS, description="Most events in the array")] = 1000,
    follow: Annotated[bool, QueryParameter(description="Follow as server-sent events")] = False,  # noqa: FBT002
) -> ASGIApp:
    """An array; or, when `Accept` asks for an event stream, all events from there on as they happen."""
    place = request.headers.get("last-event-id") or after
    sequence = await _find_start(gateway, place)
    if follow or "text/event-stream" in request.headers.get("accept", ""):
        return gateway.event_streams.open(_follow(gateway, sequence))
    return raw_json(
        b"[%b]" % b",".join([_render(gateway, message) for message in await _read(gateway, sequence, limit)])
    )


async def _find_start(gateway: Gateway, place: str) -> int:
    """Give the sequence to go on behind; without a place, that before the log's beginning."""
    info = await gateway.bus.stream_info(EVENTS.name)
    before_first = max(info.first_sequence - 1, 0)
    if not place:
        return before_first
    session, _, digits = place.rpartition(".")
    if not (digits.isascii() and digits.isdigit()):
        raise invalid(f"after must be a sequence or `session.sequence`, not {place!r}.", "after")
    current = gateway.state.session
    if session and current and session != current:
        raise _gone(f"The log of session {session} is over; the current session is {current}.")
    sequence = int(digits)
    if sequence < before_first and (sequence > 0 or session):
        raise _gone(f"The log begins at {info.first_sequence}; events behind {sequence} are gone.")
    if sequence > info.last_sequence:
        raise _gone(f"The log ends at {info.last_sequence}, before {sequence}.")
    return max(sequence, before_first)


def _gone(message: str) -> GatewayError:
    return GatewayError(Code.RESUME_EXPIRED, f"{message} Read /state, then follow from its `applied`.")


async def _read(gateway: Gateway, after: int, limit: int) -> list[StoredMessage]:
    messages: list[StoredMessage] = []
    while len(messages) < limit:
        wanted = min(_PAGE, limit - len(messages))
        page = await gateway.bus.read(EVENTS.name, subjects.EVENTS, start=after + 1, limit=wanted)
        messages += page
        if len(page) < wanted:
            break
        after = page[-1].sequence
    return messages


async def _follow(gateway: Gateway, after: int) -> AsyncGenerator[bytes, None]:
    try:
        async for message in gateway.bus.follow(EVENTS.name, after=after):
            yield encode_event(_render(gateway, message), event_id=_place_of(gateway, message))
    except NotFoundError:
        # The log was cut while we lagged behind it: ending the stream makes the client ask again and get its 410.
        return


def _place_of(gateway: Gateway, message: StoredMessage) -> str:
    return f"{gateway.state.session}.{message.sequence}"


def _render(gateway: Gateway, message: StoredMessage) -> bytes:
    """The envelope as it stands in the log, with its place in front."""
    place = _place_of(gateway, message).encode()
    return b'{"index":"%b","sequence":%d,%b' % (place, message.sequence, message.payload[1:])
