"""Making the server hold the streams and buckets of `exo.streams.layout`.

Run by `hub.py` at the start and again after every restart of the server: streams in memory vanish with
it, their configuration too. Everybody else waits until it is done.
"""

from collections.abc import Iterator
from typing import Any, Final

import structlog

from exo.broker.connect import Connection
from exo.broker.direct import get_last
from exo.broker.errors import BrokerError, BusUnavailableError
from exo.broker.jetstream import SECOND, StreamDescription, call, list_stream_names, list_streams
from exo.streams.layout import (
    BLOBS,
    BUCKETS,
    EVENTS,
    MIB,
    STREAMS,
    BucketSpec,
    Discard,
    ObjectStoreSpec,
    Retention,
    Storage,
    StreamSpec,
)
from exo.streams.subjects import EPOCH

log = structlog.get_logger(__name__)

SMALLEST: Final = 16 * MIB
TIMEOUT: Final = 5.0

Config = dict[str, Any]


def configure_stream(spec: StreamSpec) -> Config:
    """Give the configuration of a stream."""
    return {
        **_configure(spec.name, spec.subjects, storage=spec.storage, max_bytes=spec.max_bytes),
        "description": spec.description,
        "retention": spec.retention.value,
        "discard": spec.discard.value,
        "max_age": int(spec.max_age * SECOND),
        "max_msgs_per_subject": spec.max_messages_per_subject or -1,
        "duplicate_window": int(spec.duplicate_window * SECOND),
        "no_ack": not spec.acknowledged,
        "allow_direct": spec.allow_direct,
        "deny_delete": spec.deny_delete,
    }


def configure_bucket(spec: BucketSpec) -> Config:
    """Give the configuration of the stream behind a key-value bucket (NATS ADR-8, TTL by ADR-43 and ADR-48)."""
    config = {
        **_configure(f"KV_{spec.name}", (f"$KV.{spec.name}.>",), storage=spec.storage, max_bytes=spec.max_bytes),
        "description": spec.description,
        "discard": Discard.NEW.value,
        "max_msgs_per_subject": spec.history,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "deny_delete": True,
    }
    if spec.marker_ttl:
        config |= {"allow_msg_ttl": True, "subject_delete_marker_ttl": int(spec.marker_ttl * SECOND)}
    return config


def configure_object_store(spec: ObjectStoreSpec) -> Config:
    """Give the configuration of the stream behind an object store (NATS ADR-20)."""
    subjects = (f"$O.{spec.name}.C.>", f"$O.{spec.name}.M.>")
    return {
        **_configure(f"OBJ_{spec.name}", subjects, storage=spec.storage, max_bytes=spec.max_bytes),
        "description": spec.description,
        "discard": Discard.NEW.value,
        "max_age": int(spec.max_age * SECOND),
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }


def _configure(name: str, subjects: tuple[str, ...], *, storage: Storage, max_bytes: int) -> Config:
    return {
        "name": name,
        "subjects": list(subjects),
        "storage": storage.value,
        "max_bytes": max_bytes,
        "retention": Retention.LIMITS.value,
        "num_replicas": 1,
    }


def list_configs(*, scale: float = 1.0, first_sequence: int = 1) -> Iterator[Config]:
    """Give the configuration of everything, file storage scaled to the machine.

    `first_sequence` is where EXO_EVENTS begins if it does not exist yet.
    """
    made = (
        *map(configure_stream, STREAMS),
        *map(configure_bucket, BUCKETS),
        configure_object_store(BLOBS),
    )
    for config in made:
        if config["storage"] == Storage.FILE.value:
            whole = config["max_bytes"]
            config["max_bytes"] = max(int(whole * scale), min(whole, SMALLEST))
        if config["name"] == EVENTS.name and first_sequence > 1:
            config["first_seq"] = first_sequence
        yield config


def find_changes(wanted: Config, existing: Config) -> Config:
    """Give what must be changed; where a stream begins is decided when it is made."""
    return {
        key: value for key, value in wanted.items() if key != "first_seq" and existing.get(key, _absent(value)) != value
    }


def _absent(value: Any) -> Any:
    """The server leaves out what is false or zero."""
    return type(value)()


async def provision(connection: Connection, *, scale: float = 1.0, first_sequence: int = 1) -> list[str]:
    """Create what is missing and update what differs; gives the names that were touched."""
    found = {stream.config["name"]: stream for stream in await list_streams(connection, timeout=TIMEOUT)}
    touched: list[str] = [
        wanted["name"]
        for wanted in list_configs(scale=scale, first_sequence=first_sequence)
        if await _ensure(connection, wanted, found.get(wanted["name"]))
    ]
    if touched:
        log.info("streams provisioned", streams=touched)
    return touched


async def _ensure(connection: Connection, wanted: Config, existing: StreamDescription | None) -> bool:
    name = wanted["name"]
    if existing is None:
        await call(connection, f"STREAM.CREATE.{name}", wanted, timeout=TIMEOUT)
        return True
    changes = find_changes(wanted, existing.config)
    if not changes:
        return False
    try:
        await call(connection, f"STREAM.UPDATE.{name}", existing.config | changes, timeout=TIMEOUT)
    except BrokerError as error:
        hint = f"cannot change {', '.join(sorted(changes))} of {name}: {error}; with exo stopped, remove its data"
        raise type(error)(hint) from error
    return True


async def wait_provisioned(connection: Connection) -> None:
    """Refuse a server whose session is not complete: no stream may be missing, and the log has its epoch record.

    The restore hook of everybody but the hub's own connection; `BusUnavailableError` makes it try again.
    """
    names = {config["name"] for config in list_configs()}
    missing = names - await list_stream_names(connection, timeout=TIMEOUT)
    if missing:
        raise BusUnavailableError(f"the hub has not made its streams yet: {', '.join(sorted(missing))}")
    if await get_last(connection, EVENTS.name, EPOCH, timeout=TIMEOUT) is None:
        raise BusUnavailableError("the hub's session has not begun yet")
