"""The broker behind one or more `MemoryBus`es: subscriptions, streams, buckets and a clock that tests may turn.

Tests create one to join several buses; `MemoryBus()` makes its own.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec

from exo.broker.bus import Ack, Delivery, Headers
from exo.broker.errors import NoResponderError, NotFoundError
from exo.broker.memory_stream import MemoryBucket, MemoryStream
from exo.broker.memory_work import MemoryConsumer
from exo.broker.sizes import check_size
from exo.broker.wildcards import matches
from exo.streams.layout import (
    BLOBS,
    BUCKETS,
    STREAMS,
    BucketSpec,
    Discard,
    ObjectStoreSpec,
    Storage,
    StreamSpec,
)

Handler = Callable[[Delivery], None]


class MemoryInterest(msgspec.Struct, eq=False):
    """One subscription; `active` turns false when it is stopped."""

    pattern: str
    handler: Handler
    active: bool = True

    def deliver(self, delivery: Delivery) -> None:
        if self.active:
            self.handler(delivery)


class MemoryServer:
    """All that several `MemoryBus`es share."""

    def __init__(self, streams: tuple[StreamSpec, ...] = STREAMS, buckets: tuple[BucketSpec, ...] = BUCKETS) -> None:
        self._specs = (*streams, describe_object_store(BLOBS))
        self._bucket_specs = buckets
        self._streams = {spec.name: MemoryStream(spec) for spec in self._specs}
        self._buckets = {spec.name: MemoryBucket(spec) for spec in buckets}
        self._consumers: dict[tuple[str, str], MemoryConsumer] = {}
        self._interests: list[MemoryInterest] = []
        self._turned = 0.0

    @property
    def now(self) -> float:
        """Seconds of a monotonic clock, plus what `advance` added."""
        return time.monotonic() + self._turned

    @property
    def subscriptions(self) -> int:
        """How many core subscriptions are running."""
        return len(self._interests)

    def advance(self, seconds: float) -> None:
        """Turn the clock on: keys expire and unacknowledged work comes back without waiting."""
        self._turned += seconds
        for stream in self._streams.values():
            stream.notify()

    def lose_memory(self) -> None:
        """Do what a restart of nats-server and the re-provisioning after it do: empty all that is not on disk."""
        for spec in self._specs:
            if spec.storage is Storage.MEMORY:
                self._streams[spec.name] = MemoryStream(spec)
        for bucket in self._bucket_specs:
            if bucket.storage is Storage.MEMORY:
                self._buckets[bucket.name] = MemoryBucket(bucket)

    def listen(self, pattern: str, handler: Handler) -> MemoryInterest:
        interest = MemoryInterest(pattern, handler)
        self._interests.append(interest)
        return interest

    def unlisten(self, interest: MemoryInterest) -> None:
        interest.active = False
        if interest in self._interests:
            self._interests.remove(interest)

    def route(self, subject: str, payload: bytes, *, reply: str = "") -> bool:
        """Deliver to subscribers on the next turn of the loop and to streams now; False when nobody listens."""
        check_size(payload)
        delivery = Delivery(subject, payload, reply)
        heard = [interest for interest in self._interests if matches(interest.pattern, subject)]
        for interest in heard:
            asyncio.get_running_loop().call_soon(interest.deliver, delivery)
        stream = self.stream_of(subject)
        if stream is not None:
            stream.append(subject, payload, headers={}, now=self.now)
        return bool(heard)

    def append(self, subject: str, payload: bytes, *, headers: Headers) -> Ack:
        """Store a message; subscribers of its subject get it too."""
        check_size(payload, headers)
        stream = self.stream_of(subject)
        if stream is None:
            raise NoResponderError(f"no stream takes {subject}")
        ack = stream.append(subject, payload, headers=headers, now=self.now)
        for interest in self._interests:
            if matches(interest.pattern, subject):
                asyncio.get_running_loop().call_soon(interest.deliver, Delivery(subject, payload))
        return ack

    def stream_of(self, subject: str) -> MemoryStream | None:
        for stream in self._streams.values():
            if any(matches(pattern, subject) for pattern in stream.spec.subjects):
                return stream
        return None

    def stream(self, name: str) -> MemoryStream:
        stream = self._streams.get(name)
        if stream is None:
            raise NotFoundError(f"no stream {name}")
        stream.expire(self.now)
        return stream

    def streams(self) -> list[MemoryStream]:
        return [self.stream(name) for name in sorted(self._streams)]

    def bucket(self, name: str) -> MemoryBucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            raise NotFoundError(f"no bucket {name}")
        return bucket

    def consumer(self, stream: str, name: str, *, ack_wait: float) -> MemoryConsumer:
        """Give the durable consumer, made at its first use."""
        key = (stream, name)
        if key not in self._consumers:
            self._consumers[key] = MemoryConsumer(self.stream(stream), ack_wait=ack_wait)
        consumer = self._consumers[key]
        consumer.ack_wait = ack_wait
        return consumer

    def count_consumers(self, stream: str) -> int:
        return sum(1 for name, _ in self._consumers if name == stream)


def describe_object_store(spec: ObjectStoreSpec) -> StreamSpec:
    """Give the stream behind an object store."""
    return StreamSpec(
        name=f"OBJ_{spec.name}",
        subjects=(f"$O.{spec.name}.C.>", f"$O.{spec.name}.M.>"),
        storage=spec.storage,
        discard=Discard.NEW,
        max_bytes=spec.max_bytes,
        max_age=spec.max_age,
        description=spec.description,
    )
