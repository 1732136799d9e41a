"""JetStream's JSON API in the few calls that exo makes, and what its error codes mean.

Spoken over a `Connection` by `nats_bus.py`, `follower.py`, `consumers.py` and `provision.py`.
Formats: docs.nats.io/reference/reference-protocols/nats_api_reference. Durations are nanoseconds.
"""

from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from exo.broker.bus import StreamInfo
from exo.broker.connect import Connection
from exo.broker.errors import BrokerError, ConflictError, NoResponderError, NotFoundError, StreamFullError

T = TypeVar("T")

API: Final = "$JS.API"
SECOND: Final = 1_000_000_000
"""Nanoseconds."""

_MEANINGS: Final[dict[int, type[BrokerError]]] = {
    10071: ConflictError,  # wrong last sequence
    10164: ConflictError,  # wrong last sequence, constant text
    10077: StreamFullError,  # maximum bytes or messages exceeded
    10023: StreamFullError,  # insufficient resources: the server's own limit
    10047: StreamFullError,  # insufficient storage
    10059: NotFoundError,  # stream
    10014: NotFoundError,  # consumer
    10037: NotFoundError,  # message
}


class ApiError(msgspec.Struct, frozen=True):
    """What the server says went wrong."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class _Failure(msgspec.Struct, frozen=True):
    error: ApiError | None = None


class StreamState(msgspec.Struct, frozen=True):
    """What a stream holds."""

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    consumer_count: int = 0


class StreamDescription(msgspec.Struct, frozen=True):
    """A stream's configuration and state; `ts` is the server's time of the answer, left out in lists."""

    config: dict[str, Any]
    state: StreamState
    ts: datetime | None = None

    def to_info(self) -> StreamInfo:
        # An empty stream that was never written says 0, not 1.
        first = self.state.first_seq if self.state.messages else self.state.last_seq + 1
        return StreamInfo(
            name=self.config["name"],
            messages=self.state.messages,
            bytes=self.state.bytes,
            first_sequence=first,
            last_sequence=self.state.last_seq,
            consumers=self.state.consumer_count,
            time=int(self.ts.timestamp() * 1000) if self.ts is not None else 0,
        )


class StreamPage(msgspec.Struct, frozen=True):
    """One page of the list of streams."""

    total: int
    streams: tuple[StreamDescription, ...] | None = ()


class NamesPage(msgspec.Struct, frozen=True):
    """One page of the names of streams."""

    streams: tuple[str, ...] | None = ()


_failure: Final = msgspec.json.Decoder(_Failure)


def error_of(error: ApiError, *, what: str) -> BrokerError:
    """Turn the server's error into ours."""
    return _MEANINGS.get(error.err_code, BrokerError)(f"{what}: {error.description} ({error.err_code})")


async def call(connection: Connection, verb: str, body: Any = None, *, timeout: float) -> bytes:
    """Ask `$JS.API.<verb>`; gives the JSON of a success."""
    payload = b"" if body is None else msgspec.json.encode(body)
    reply = await connection.request(f"{API}.{verb}", payload, timeout=timeout)
    failure = _failure.decode(reply.payload)
    if failure.error is not None:
        raise error_of(failure.error, what=verb)
    return reply.payload


async def describe_stream(connection: Connection, stream: str, *, timeout: float) -> StreamDescription:
    """Give one stream; `NotFoundError` when there is none."""
    reply = await call(connection, f"STREAM.INFO.{stream}", timeout=timeout)
    return msgspec.json.decode(reply, type=StreamDescription)


async def list_streams(connection: Connection, *, timeout: float) -> list[StreamDescription]:
    """Give all streams, those behind buckets too."""
    found: list[StreamDescription] = []
    while True:
        reply = await call(connection, "STREAM.LIST", {"offset": len(found)}, timeout=timeout)
        page = msgspec.json.decode(reply, type=StreamPage)
        found += page.streams or ()
        if not page.streams or len(found) >= page.total:
            return found


async def list_stream_names(connection: Connection, *, timeout: float) -> set[str]:
    """Give the names of all streams (one page of the server holds 1,024)."""
    page = msgspec.json.decode(await call(connection, "STREAM.NAMES", timeout=timeout), type=NamesPage)
    return set(page.streams or ())


async def delete_consumer(connection: Connection, stream: str, name: str, *, timeout: float) -> None:
    """Remove a consumer if it is still there."""
    try:
        await call(connection, f"CONSUMER.DELETE.{stream}.{name}", timeout=timeout)
    except (NotFoundError, NoResponderError):
        return
