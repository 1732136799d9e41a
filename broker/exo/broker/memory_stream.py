"""One stream and one bucket held in memory, with JetStream's rules and none of its network.

Owned by `MemoryServer`; plain data structures, `now` comes from outside.
"""

import asyncio
import time
from bisect import bisect_left
from itertools import takewhile

import msgspec

from exo.broker.bus import Ack, Headers, KeyEntry, StoredMessage, StreamInfo
from exo.broker.errors import BrokerError, ConflictError, StreamFullError
from exo.broker.wildcards import matches
from exo.streams import envelope
from exo.streams.layout import BucketSpec, Discard, StreamSpec

ROLLUP = "Nats-Rollup"


def _sequence_of(message: StoredMessage) -> int:
    return message.sequence


def _time_of_day(now: float) -> int:
    """Give Unix time in ms for a moment of the server's own clock, which tests turn on."""
    return int((time.time() + now - time.monotonic()) * 1000)


class MemoryStream:
    """Messages in order, limits, deduplication and compare-and-set."""

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        self.messages: list[StoredMessage] = []
        self.last_sequence = 0
        self.bytes = 0
        self.changed = asyncio.Event()
        self._times: dict[int, float] = {}
        self._last: dict[str, StoredMessage] = {}
        self._seen: dict[str, tuple[int, float]] = {}

    @property
    def first_sequence(self) -> int:
        return self.messages[0].sequence if self.messages else self.last_sequence + 1

    def append(self, subject: str, payload: bytes, *, headers: Headers, now: float) -> Ack:
        """Store a message as the server would; compare-and-set is judged before duplicates (as 2.12+ does)."""
        self.expire(now)
        self._check_expected(subject, headers)
        message_id = headers.get(envelope.MESSAGE_ID)
        if message_id is not None and message_id in self._seen:
            return Ack(self.spec.name, self._seen[message_id][0], duplicate=True)
        if headers.get(ROLLUP) == "sub":
            self.purge(subject=subject, below=0)
        self._make_room(subject, len(subject) + len(payload))
        self.last_sequence += 1
        message = StoredMessage(subject, self.last_sequence, payload, _time_of_day(now))
        self.messages.append(message)
        self._last[subject] = message
        self.bytes += len(subject) + len(payload)
        self._times[self.last_sequence] = now
        if message_id is not None:
            self._seen[message_id] = (self.last_sequence, now)
        self.notify()
        return Ack(self.spec.name, self.last_sequence)

    def _check_expected(self, subject: str, headers: Headers) -> None:
        expected = headers.get(envelope.EXPECTED_SEQUENCE)
        if expected is None:
            return
        last = self.get_last(headers.get(envelope.EXPECTED_SUBJECT, subject))
        actual = last.sequence if last else 0
        if int(expected) != actual:
            raise ConflictError(f"{subject}: expected sequence {expected}, but it is {actual}")

    def _make_room(self, subject: str, size: int) -> None:
        limit = self.spec.max_messages_per_subject
        if limit:
            held = [message.sequence for message in self.messages if message.subject == subject]
            self.remove(set(held[: len(held) - limit + 1]) if len(held) >= limit else set())
        if self.bytes + size <= self.spec.max_bytes:
            return
        if self.spec.discard is Discard.NEW:
            raise StreamFullError(f"{self.spec.name} is full")
        excess, gone = self.bytes + size - self.spec.max_bytes, set[int]()
        for message in self.messages:
            if excess <= 0:
                break
            gone.add(message.sequence)
            excess -= len(message.subject) + len(message.payload)
        self.remove(gone)

    def expire(self, now: float) -> None:
        """Forget messages over their age and message ids outside the window."""
        if self.spec.max_age:
            old = takewhile(lambda item: now - item[1] >= self.spec.max_age, self._times.items())
            self.remove({sequence for sequence, _ in old})
        window = self.spec.duplicate_window
        while self._seen:
            oldest = next(iter(self._seen))
            if now - self._seen[oldest][1] < window:
                break
            del self._seen[oldest]

    def remove(self, sequences: set[int]) -> None:
        """Drop messages by sequence."""
        if not sequences:
            return
        self.messages = [message for message in self.messages if message.sequence not in sequences]
        self.bytes = sum(len(message.subject) + len(message.payload) for message in self.messages)
        for sequence in sequences:
            self._times.pop(sequence, None)
        for subject in [subject for subject, message in self._last.items() if message.sequence in sequences]:
            del self._last[subject]
            older = next((message for message in reversed(self.messages) if message.subject == subject), None)
            if older is not None:
                self._last[subject] = older

    def purge(self, *, subject: str, below: int) -> None:
        """Drop messages of one subject (wildcards allowed) and/or below a sequence."""
        self.remove(
            {
                message.sequence
                for message in self.messages
                if (not subject or matches(subject, message.subject)) and (not below or message.sequence < below)
            }
        )

    def get_last(self, subject: str) -> StoredMessage | None:
        return self._last.get(subject)

    def read(self, subject: str, *, start: int, limit: int) -> list[StoredMessage]:
        """Give up to `limit` messages from sequence `start` on."""
        found: list[StoredMessage] = []
        for index in range(bisect_left(self.messages, start, key=_sequence_of), len(self.messages)):
            if matches(subject, self.messages[index].subject):
                found.append(self.messages[index])
                if len(found) == limit:
                    break
        return found

    def notify(self) -> None:
        """Wake everybody who waits for a change."""
        woken, self.changed = self.changed, asyncio.Event()
        woken.set()

    def info(self, *, consumers: int, now: float) -> StreamInfo:
        return StreamInfo(
            name=self.spec.name,
            messages=len(self.messages),
            bytes=self.bytes,
            first_sequence=self.first_sequence,
            last_sequence=self.last_sequence,
            consumers=consumers,
            time=_time_of_day(now),
        )


class _Value(msgspec.Struct, frozen=True):
    value: bytes
    revision: int
    expires: float


class MemoryBucket:
    """Keys with revisions and per-key TTL."""

    def __init__(self, spec: BucketSpec) -> None:
        self.spec = spec
        self._values: dict[str, _Value] = {}
        self._revision = 0

    def put(self, key: str, value: bytes, *, revision: int | None, ttl: int, now: float) -> int:
        """Write a key as `Bus.put` says."""
        if ttl and not self.spec.marker_ttl:
            raise BrokerError(f"bucket {self.spec.name} keeps no per-key TTL")
        current = self.get(key, now=now)
        if revision is not None and revision != (current.revision if current else 0):
            raise ConflictError(f"{self.spec.name}.{key}: revision {revision} is not the newest one")
        self._revision += 1
        self._values[key] = _Value(value, self._revision, now + ttl if ttl else float("inf"))
        return self._revision

    def get(self, key: str, *, now: float) -> KeyEntry | None:
        found = self._values.get(key)
        if found is None or found.expires <= now or not found.value:
            return None
        return KeyEntry(key, found.value, found.revision)

    def delete(self, key: str) -> None:
        self._revision += 1
        self._values.pop(key, None)

    def entries(self, *, now: float) -> dict[str, KeyEntry]:
        found = ((key, self.get(key, now=now)) for key in sorted(self._values))
        return {key: entry for key, entry in found if entry is not None}
