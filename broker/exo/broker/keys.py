"""Key-value buckets, spoken as the streams they are (NATS ADR-8).

Used by `nats_bus.py`. nats-py's own KeyValue cannot renew a TTL, and after an expiry neither
creates the key again nor reads it as absent (ADR 0012, defects 1 and 2).
"""

from typing import Final

from exo.broker import direct
from exo.broker.appending import append
from exo.broker.bus import KeyEntry, StoredMessage
from exo.broker.connect import Connection
from exo.broker.errors import ConflictError
from exo.broker.wildcards import check_key
from exo.streams import envelope

ATTEMPTS: Final = 3
"""A marker that stands for an expired key may itself expire between two looks."""


async def put(
    connection: Connection, bucket: str, key: str, value: bytes, *, revision: int | None, ttl: int, timeout: float
) -> int:
    """Write a key as `Bus.put` says."""
    headers: dict[str, str] = {envelope.MESSAGE_TTL: f"{ttl}s"} if ttl else {}
    subject = f"$KV.{bucket}.{check_key(key)}"
    if revision is None:
        return (await append(connection, subject, value, headers=headers, timeout=timeout)).sequence
    expected = revision
    for _ in range(ATTEMPTS):
        headers[envelope.EXPECTED_SEQUENCE] = str(expected)
        try:
            return (await append(connection, subject, value, headers=headers, timeout=timeout)).sequence
        except ConflictError:
            last = await direct.get_last(connection, f"KV_{bucket}", subject, timeout=timeout)
            if revision != 0 or (last is not None and last.payload):
                raise
            # Absent for us, but the server counts from the marker that a deletion or an expiry left.
            expected = last.sequence if last else 0
    raise ConflictError(f"{bucket}.{key} changes too fast")


async def get(connection: Connection, bucket: str, key: str, *, timeout: float) -> KeyEntry | None:
    """Give the newest value; a marker has none."""
    last = await direct.get_last(connection, f"KV_{bucket}", f"$KV.{bucket}.{check_key(key)}", timeout=timeout)
    return _to_entry(last, bucket) if last is not None and last.payload else None


async def delete(connection: Connection, bucket: str, key: str, *, timeout: float) -> None:
    """Leave a delete marker, as other clients do."""
    headers = {"KV-Operation": "DEL"}
    await append(connection, f"$KV.{bucket}.{check_key(key)}", b"", headers=headers, timeout=timeout)


async def keys(connection: Connection, bucket: str, *, timeout: float) -> dict[str, KeyEntry]:
    """Give all keys that have a value."""
    found = await direct.read_last_of_each(connection, f"KV_{bucket}", f"$KV.{bucket}.>", timeout=timeout)
    entries = (_to_entry(message, bucket) for message in found if message.payload)
    return {entry.key: entry for entry in sorted(entries, key=lambda entry: entry.key)}


def _to_entry(message: StoredMessage, bucket: str) -> KeyEntry:
    return KeyEntry(message.subject.removeprefix(f"$KV.{bucket}."), message.payload, message.sequence)
