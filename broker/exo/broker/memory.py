"""`MemoryBus`: the `Bus` port without a server, for tests of everything above it.

The conformance suite in tests/contract holds it to what `NatsBus` does. `disconnect` and
`reconnect` play a lost server; `server.advance` turns the clock.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Final

import structlog

from exo.broker.bus import Ack, Delivery, Headers, KeyEntry, StoredMessage, StreamInfo, Subscription, WorkItem
from exo.broker.errors import BusUnavailableError, NoResponderError, NotFoundError
from exo.broker.memory_server import Handler, MemoryInterest, MemoryServer
from exo.broker.memory_work import MemoryConsumer
from exo.broker.poison import poison_message
from exo.broker.sizes import check_size
from exo.broker.wildcards import check_key

log = structlog.get_logger(__name__)

BATCH: Final = 512


class MemoryBus:
    """One connection to a `MemoryServer`."""

    def __init__(self, server: MemoryServer | None = None) -> None:
        self.server = server or MemoryServer()
        self._connected = asyncio.Event()
        self._connected.set()
        self._closed = False
        self._listeners: list[Callable[[bool], None]] = []
        self._buffered: list[tuple[str, bytes]] = []
        self._subscriptions: set[_MemorySubscription] = set()
        self._inboxes = count(1)

    @property
    def connected(self) -> bool:
        return self._connected.is_set() and not self._closed

    def on_connection_change(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def disconnect(self) -> None:
        """Play the loss of the connection."""
        self._connected.clear()
        self._tell(connected=False)

    def reconnect(self) -> None:
        """Play its return: what was published meanwhile is sent."""
        self._connected.set()
        buffered, self._buffered = self._buffered, []
        for subject, payload in buffered:
            self.server.route(subject, payload)
        self._tell(connected=True)

    def move(self, server: MemoryServer) -> None:
        """Play a hub that moved while the connection was lost: its return leads to another server."""
        for subscription in self._subscriptions:
            subscription.move(server)
        self.server = server

    def _tell(self, *, connected: bool) -> None:
        for listener in tuple(self._listeners):
            listener(connected)

    async def _turn(self) -> None:
        """Give other tasks a turn, as a round trip would, and refuse while there is no connection."""
        if not self.connected:
            raise BusUnavailableError("the bus is closed" if self._closed else "not connected to the broker")
        await asyncio.sleep(0)

    # Core.

    async def publish(self, subject: str, payload: bytes) -> None:
        if self._closed:
            raise BusUnavailableError("the bus is closed")
        check_size(payload)
        if self.connected:
            self.server.route(subject, payload)
        else:
            self._buffered.append((subject, payload))

    async def flush(self) -> None:
        await self._turn()

    async def subscribe(self, subject: str, handler: Callable[[Delivery], None]) -> Subscription:
        await self._turn()
        return self._listen(subject, handler)

    def _listen(self, subject: str, handler: Callable[[Delivery], None]) -> "_MemorySubscription":
        def guard(delivery: Delivery) -> None:
            if not self.connected:
                return
            try:
                handler(delivery)
            except Exception:
                log.exception("handler failed", subject=delivery.subject)

        subscription = _MemorySubscription(self.server, subject, guard, self._subscriptions)
        self._subscriptions.add(subscription)
        return subscription

    async def request(self, subject: str, payload: bytes, *, timeout: float) -> bytes:
        await self._turn()
        answer: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        inbox = f"_INBOX.memory.{id(self)}.{next(self._inboxes)}"
        subscription = self._listen(inbox, lambda delivery: None if answer.done() else answer.set_result(delivery))
        try:
            if not self.server.route(subject, payload, reply=inbox):
                raise NoResponderError(f"nobody answers on {subject}")
            async with asyncio.timeout(timeout):
                delivery = await answer
        except TimeoutError as error:
            raise BusUnavailableError(f"no answer on {subject} in {timeout:g} s") from error
        finally:
            await subscription.stop()
        if delivery.reply == _FAILED:
            raise BusUnavailableError(f"the responder of {subject} failed")
        return delivery.payload

    async def respond(self, subject: str, handler: Callable[[bytes], Awaitable[bytes]]) -> Subscription:
        await self._turn()
        running: set[asyncio.Task[None]] = set()

        async def answer(delivery: Delivery) -> None:
            try:
                reply, mark = await handler(delivery.payload), ""
            except Exception:
                log.exception("responder failed", subject=subject)
                reply, mark = b"", _FAILED
            if delivery.reply:
                self.server.route(delivery.reply, reply, reply=mark)

        def start(delivery: Delivery) -> None:
            task = asyncio.get_running_loop().create_task(answer(delivery))
            running.add(task)
            task.add_done_callback(running.discard)

        return self._listen(subject, start)

    # Streams.

    async def append(self, subject: str, payload: bytes, *, headers: Headers | None = None) -> Ack:
        await self._turn()
        return self.server.append(subject, payload, headers=headers or {})

    async def get_last(self, stream: str, subject: str) -> StoredMessage | None:
        await self._turn()
        return self.server.stream(stream).get_last(subject)

    async def read(self, stream: str, subject: str, *, start: int = 1, limit: int = 512) -> list[StoredMessage]:
        await self._turn()
        return self.server.stream(stream).read(subject, start=start, limit=limit)

    async def purge(self, stream: str, *, subject: str = "", below: int = 0) -> None:
        await self._turn()
        self.server.stream(stream).purge(subject=subject, below=below)

    async def stream_info(self, stream: str) -> StreamInfo:
        await self._turn()
        return self.server.stream(stream).info(consumers=self.server.count_consumers(stream), now=self.server.now)

    async def stream_infos(self) -> list[StreamInfo]:
        await self._turn()
        return [
            stream.info(consumers=self.server.count_consumers(stream.spec.name), now=self.server.now)
            for stream in self.server.streams()
        ]

    async def follow(self, stream: str, *, after: int) -> AsyncGenerator[StoredMessage]:
        while True:
            await self._wait_connected()
            held = self.server.stream(stream)
            changed = held.changed
            if not held.first_sequence - 1 <= after <= held.last_sequence:
                raise NotFoundError(f"{stream} holds {held.first_sequence} to {held.last_sequence}, not {after + 1}")
            batch = held.read(">", start=after + 1, limit=BATCH)
            for message in batch:
                yield message
                after = message.sequence
            if not batch:
                await _wait_any(changed, timeout=0.25)
            elif len(batch) == BATCH:
                await asyncio.sleep(0)

    async def work(
        self, stream: str, *, name: str, ack_wait: float = 5, max_deliver: int = 5
    ) -> AsyncGenerator[WorkItem]:
        while True:
            await self._wait_connected()
            consumer = self.server.consumer(stream, name, ack_wait=ack_wait)
            changed, taken = consumer.stream.changed, consumer.take(self.server.now)
            if taken is None:
                await _wait_any(changed, timeout=min(consumer.next_due(self.server.now) or 0.25, 0.25))
                continue
            item = _MemoryWorkItem(self, consumer, *taken)
            if item.deliveries > max_deliver:
                await item.term(f"delivered more than {max_deliver} times")
            else:
                yield item

    async def _wait_connected(self) -> None:
        while not self.connected:
            if self._closed:
                raise BusUnavailableError("the bus is closed")
            await _wait_any(self._connected, timeout=0.25)

    # Keys.

    async def put(self, bucket: str, key: str, value: bytes, *, revision: int | None = None, ttl: int = 0) -> int:
        check_size(value)
        await self._turn()
        held = self.server.bucket(bucket)
        return held.put(check_key(key), value, revision=revision, ttl=ttl, now=self.server.now)

    async def get(self, bucket: str, key: str) -> KeyEntry | None:
        await self._turn()
        return self.server.bucket(bucket).get(check_key(key), now=self.server.now)

    async def delete(self, bucket: str, key: str) -> None:
        await self._turn()
        self.server.bucket(bucket).delete(check_key(key))

    async def keys(self, bucket: str) -> dict[str, KeyEntry]:
        await self._turn()
        return self.server.bucket(bucket).entries(now=self.server.now)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._connected.clear()
        for subscription in tuple(self._subscriptions):
            await subscription.stop()


_FAILED: Final = "failed"


async def _wait_any(event: asyncio.Event, *, timeout: float) -> None:
    # Not `wait_for`: before Python 3.12 it swallows a cancellation that meets the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await event.wait()


class _MemorySubscription:
    def __init__(
        self, server: MemoryServer, subject: str, handler: Handler, registry: "set[_MemorySubscription]"
    ) -> None:
        self._server = server
        self._registry = registry
        self._interest: MemoryInterest = server.listen(subject, handler)

    def move(self, server: MemoryServer) -> None:
        """Listen on another server instead."""
        self._server.unlisten(self._interest)
        self._server = server
        self._interest = server.listen(self._interest.pattern, self._interest.handler)

    async def stop(self) -> None:
        self._server.unlisten(self._interest)
        self._registry.discard(self)


class _MemoryWorkItem:
    def __init__(self, bus: MemoryBus, consumer: MemoryConsumer, message: StoredMessage, deliveries: int) -> None:
        self._bus = bus
        self._consumer = consumer
        self.message = message
        self.deliveries = deliveries

    async def ack(self) -> None:
        self._consumer.settle(self.message.sequence)

    async def nak(self, *, delay: float = 0) -> None:
        self._consumer.postpone(self.message.sequence, until=self._bus.server.now + delay)

    async def term(self, reason: str) -> None:
        stream = self._consumer.stream.spec.name
        copy = poison_message(stream, self.message, deliveries=self.deliveries, reason=reason)
        await self._bus.append(*copy)
        self._consumer.settle(self.message.sequence)

    async def in_progress(self) -> None:
        until = self._bus.server.now + self._consumer.ack_wait
        self._consumer.postpone(self.message.sequence, until=until)
