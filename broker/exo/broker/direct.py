"""Direct get: reading a stream without a consumer (NATS ADR-31).

Used by `nats_bus.py` for messages and keys; 11 us a message, and nothing is left behind on the server.
"""

from typing import Any, Final

import msgspec

from exo.broker.bus import StoredMessage
from exo.broker.connect import Connection
from exo.broker.errors import BrokerError, BusUnavailableError
from exo.broker.frames import Frame
from exo.broker.jetstream import API
from exo.broker.replies import read_direct

BATCH_BYTES: Final = 32 * 1024 * 1024
NOT_FOUND: Final = "404"
END_OF_BATCH: Final = "204"
TIMED_OUT: Final = "408"


async def get_last(connection: Connection, stream: str, subject: str, *, timeout: float) -> StoredMessage | None:
    """Give the newest message on a subject, delete and expiry markers included."""
    reply = await connection.request(f"{API}.DIRECT.GET.{stream}.{subject}", b"", timeout=timeout)
    if reply.status == NOT_FOUND:
        return None
    _check(reply, stream)
    return read_direct(reply)


async def read(
    connection: Connection, stream: str, subject: str, *, start: int, limit: int, timeout: float
) -> list[StoredMessage]:
    """Give up to `limit` messages of a subject from sequence `start` on."""
    found: list[StoredMessage] = []
    while len(found) < limit:
        query = {"seq": start, "batch": limit - len(found), "max_bytes": BATCH_BYTES, "next_by_subj": subject}
        batch, pending = await _ask(connection, stream, query, timeout=timeout)
        found += batch
        if not batch or not pending:
            break
        start = batch[-1].sequence + 1
    return found


async def read_last_of_each(
    connection: Connection, stream: str, subject: str, *, timeout: float
) -> list[StoredMessage]:
    """Give the newest message of every subject that a pattern covers (at most 1,024 of them)."""
    batch, _ = await _ask(connection, stream, {"multi_last": [subject]}, timeout=timeout)
    return batch


async def _ask(
    connection: Connection, stream: str, query: dict[str, Any], *, timeout: float
) -> tuple[list[StoredMessage], int]:
    replies = await connection.collect(
        f"{API}.DIRECT.GET.{stream}", msgspec.json.encode(query), timeout=timeout, is_last=_ends_batch
    )
    *messages, end = replies
    if end.status == NOT_FOUND:
        return [], 0
    _check(end, stream)
    pending = int(end.read_headers().get("Nats-Num-Pending", "0"))
    return [read_direct(message) for message in messages], pending


def _ends_batch(reply: Frame) -> bool:
    return reply.status != ""


def _check(reply: Frame, stream: str) -> None:
    status = reply.status
    if status in ("", END_OF_BATCH):
        return
    described = f"{stream}: {reply.description or 'direct get failed'} ({status})"
    raise BusUnavailableError(described) if status == TIMED_OUT else BrokerError(described)
