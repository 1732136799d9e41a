"""Resumes the stream of a request behind any frame, on any node."""

import asyncio
from typing import Any, Final

from litestar import Request, get
from litestar.params import FromPath, FromQuery
from litestar.types import ASGIApp

from exo.broker.errors import BrokerError
from exo.gateway.answers import AnswerResponse
from exo.gateway.api_keys import caller_of
from exo.gateway.dialects.registry import DIALECTS
from exo.gateway.errors import GatewayError
from exo.gateway.gateway import Gateway, Here
from exo.gateway.relay import Relay
from exo.gateway.sse import parse_position
from exo.streams import subjects
from exo.streams.codec import CodecError, decode_stored_request
from exo.streams.codes import Code
from exo.streams.ids import TaskId, task_of_public_id
from exo.streams.layout import REQUESTS
from exo.streams.requests import StoredRequest
from exo.streams.tasks import EndedTask

_LOOK_AGAIN: Final = 0.25


@get("/v1/requests/{request_id:str}/stream", summary="Resume a stream")
async def resume_stream(
    request: Request[Any, Any, Any], gateway: Here, request_id: FromPath[str], last_event_id: FromQuery[str] = ""
) -> ASGIApp:
    """Continues behind `Last-Event-ID`, or from the beginning. 410 once the first chunks are gone."""
    position = parse_position(request.headers.get("last-event-id", last_event_id))
    task = task_of_public_id(request_id)
    if task is None:
        raise _unknown(request_id)
    await gateway.outages.wait_connected(timeout=gateway.settings.command_timeout)
    ended = gateway.state.ended_tasks.get(task)
    if ended is not None and ended.code == Code.NODE_RESTARTED:
        raise GatewayError(ended.code, ended.message, status=410)
    stored = await _read_stored(gateway, task, ended, request_id)
    if stored.resume.key != caller_of(request).key:
        # Told apart from an unknown one it would say that somebody else's request exists.
        raise _unknown(request_id)
    relay = await gateway.hub.open(task, cancels=False, resumed=True)
    if not await _find_beginning(gateway, relay):
        gateway.hub.close(relay)
        raise _expired(ended)
    first = await gateway.courier.await_first(relay, request.receive)
    dialect = DIALECTS[stored.resume.dialect]
    return AnswerResponse(relay, stored, dialect=dialect, first=first, courier=gateway.courier, after=position)


async def _find_beginning(gateway: Gateway, relay: Relay) -> bool:
    """Read what there is of an answer; a new hub is given a moment to be brought its chunks."""
    while True:
        await gateway.hub.repair(relay)
        begins_later = relay.task in gateway.state.tasks and not relay.assembly.has_gap
        if relay.assembly.next_index > 0 or begins_later:
            return True
        if not gateway.outages.settling:
            return False
        await asyncio.sleep(_LOOK_AGAIN)


async def _read_stored(gateway: Gateway, task: TaskId, ended: EndedTask | None, request_id: str) -> StoredRequest:
    try:
        message = await gateway.bus.get_last(REQUESTS.name, subjects.request(task))
        while message is None and gateway.outages.settling:
            # Its gateway brings it to a new hub.
            await asyncio.sleep(_LOOK_AGAIN)
            message = await gateway.bus.get_last(REQUESTS.name, subjects.request(task))
    except BrokerError as error:
        raise GatewayError(Code.BROKER_UNAVAILABLE, f"The request cannot be looked up right now: {error}") from error
    if message is None:
        raise _expired(ended) if ended is not None else _unknown(request_id)
    try:
        return decode_stored_request(message.payload)
    except CodecError as error:
        raise GatewayError(Code.INTERNAL, "The stored request cannot be read.") from error


def _unknown(request_id: str) -> GatewayError:
    return GatewayError(Code.TASK_NOT_FOUND, f"No request {request_id!r} is running or kept.")


def _expired(ended: EndedTask | None) -> GatewayError:
    if ended is None:
        how = "its beginning is gone"
    elif ended.code:
        how = f"it ended with {ended.code}: {ended.message}"
    else:
        how = "it was answered in full"
    return GatewayError(Code.RESUME_EXPIRED, f"The stream is no longer kept; {how}.")
