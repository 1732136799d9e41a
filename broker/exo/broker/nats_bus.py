"""`NatsBus`: the `Bus` port over nats-server.

Each method is a few lines: `connect.py` keeps the connection, the planes live in modules of their
own. Everything but `publish` first waits for a lost connection to be back, up to its timeout.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Final, Self

import structlog
from nats import errors as nats_errors

from exo.broker import appending, direct, jetstream, keys
from exo.broker.bus import Ack, Delivery, Headers, KeyEntry, StoredMessage, StreamInfo, Subscription, WorkItem
from exo.broker.connect import Connection
from exo.broker.consumers import WorkQueue, work
from exo.broker.errors import BusUnavailableError
from exo.broker.feeds import Feed
from exo.broker.follower import follow
from exo.broker.frames import Frame
from exo.broker.policy import ConnectionSettings, translate

log = structlog.get_logger(__name__)

TIMEOUT: Final = 5.0
SERVICE_ERROR: Final = "Nats-Service-Error"


class NatsBus:
    """One connection to nats-server; also an async context manager that opens and closes it."""

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        restore: Callable[[Connection], Awaitable[None]] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self.connection = Connection(settings, restore=restore)
        self._timeout = timeout

    async def open(self) -> None:
        """Connect; `PermissionDeniedError` or `BusUnavailableError` when that fails."""
        await self.connection.open()

    @property
    def connected(self) -> bool:
        return self.connection.ready

    def on_connection_change(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        return self.connection.on_change(listener)

    # Core.

    async def publish(self, subject: str, payload: bytes) -> None:
        try:
            await self.connection.client.publish(subject, payload)
        except nats_errors.Error as error:
            limit = self.connection.client.max_payload
            raise translate(error, subject=subject, size=len(payload), limit=limit) from error

    async def flush(self) -> None:
        await self._gate()
        await self.connection.flush(self._timeout)

    async def subscribe(self, subject: str, handler: Callable[[Delivery], None]) -> Subscription:
        def deliver(message: Frame) -> None:
            handler(Delivery(message.subject, message.payload, message.reply))

        return await self._subscribe(subject, deliver)

    async def _subscribe(self, subject: str, deliver: Callable[[Frame], None]) -> Subscription:
        await self._gate()
        feed = await self.connection.add(Feed(subject, deliver))
        try:
            await self._confirm(feed)
        except BaseException:
            await self.connection.remove(feed)
            raise
        return _Subscription(self.connection, feed)

    async def _confirm(self, feed: Feed) -> None:
        """From now on whoever publishes finds us. The server tells a refusal before it answers."""
        await self.flush()
        if feed.denied is not None:
            raise feed.denied

    async def request(self, subject: str, payload: bytes, *, timeout: float) -> bytes:
        await self._gate(timeout)
        reply = await self.connection.request(subject, payload, timeout=timeout)
        failure = reply.read_headers().get(SERVICE_ERROR) if reply.headers else None
        if failure:
            raise BusUnavailableError(f"the responder of {subject} failed: {failure}")
        return reply.payload

    async def respond(self, subject: str, handler: Callable[[bytes], Awaitable[bytes]]) -> Subscription:
        running: set[asyncio.Task[None]] = set()

        async def answer(message: Frame) -> None:
            failure: Headers | None = None
            try:
                reply = await handler(message.payload)
            except Exception as error:
                log.exception("responder failed", subject=subject)
                reply, failure = b"", {SERVICE_ERROR: type(error).__name__}
            if message.reply:
                await self.connection.send(message.reply, reply, headers=failure)

        def start(message: Frame) -> None:
            task = asyncio.get_running_loop().create_task(_answer_safely(answer(message), subject))
            running.add(task)
            task.add_done_callback(running.discard)

        return await self._subscribe(subject, start)

    # Streams.

    async def append(self, subject: str, payload: bytes, *, headers: Headers | None = None) -> Ack:
        await self._gate()
        return await appending.append(self.connection, subject, payload, headers=headers, timeout=self._timeout)

    async def get_last(self, stream: str, subject: str) -> StoredMessage | None:
        await self._gate()
        return await direct.get_last(self.connection, stream, subject, timeout=self._timeout)

    async def read(self, stream: str, subject: str, *, start: int = 1, limit: int = 512) -> list[StoredMessage]:
        await self._gate()
        return await direct.read(self.connection, stream, subject, start=start, limit=limit, timeout=self._timeout)

    async def purge(self, stream: str, *, subject: str = "", below: int = 0) -> None:
        await self._gate()
        query = {key: value for key, value in (("filter", subject), ("seq", below)) if value}
        await jetstream.call(self.connection, f"STREAM.PURGE.{stream}", query, timeout=self._timeout)

    async def stream_info(self, stream: str) -> StreamInfo:
        await self._gate()
        return (await jetstream.describe_stream(self.connection, stream, timeout=self._timeout)).to_info()

    async def stream_infos(self) -> list[StreamInfo]:
        await self._gate()
        found = await jetstream.list_streams(self.connection, timeout=self._timeout)
        return sorted((stream.to_info() for stream in found), key=lambda info: info.name)

    def follow(self, stream: str, *, after: int) -> AsyncGenerator[StoredMessage]:
        return follow(self.connection, stream, after=after, timeout=self._timeout)

    def work(self, stream: str, *, name: str, ack_wait: float = 5, max_deliver: int = 5) -> AsyncGenerator[WorkItem]:
        queue = WorkQueue(stream=stream, name=name, ack_wait=ack_wait, max_deliver=max_deliver, timeout=self._timeout)
        return work(self.connection, queue)

    # Keys.

    async def put(self, bucket: str, key: str, value: bytes, *, revision: int | None = None, ttl: int = 0) -> int:
        await self._gate()
        return await keys.put(self.connection, bucket, key, value, revision=revision, ttl=ttl, timeout=self._timeout)

    async def get(self, bucket: str, key: str) -> KeyEntry | None:
        await self._gate()
        return await keys.get(self.connection, bucket, key, timeout=self._timeout)

    async def delete(self, bucket: str, key: str) -> None:
        await self._gate()
        await keys.delete(self.connection, bucket, key, timeout=self._timeout)

    async def keys(self, bucket: str) -> dict[str, KeyEntry]:
        await self._gate()
        return await keys.keys(self.connection, bucket, timeout=self._timeout)

    async def close(self) -> None:
        await self.connection.close()

    async def _gate(self, timeout: float | None = None) -> None:
        """Let nobody see streams that are not restored yet."""
        if not self.connection.ready:
            await self.connection.wait_ready(self._timeout if timeout is None else timeout)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Subscription:
    def __init__(self, connection: Connection, feed: Feed) -> None:
        self._connection = connection
        self._feed = feed

    async def stop(self) -> None:
        await self._connection.remove(self._feed)


async def _answer_safely(answer: Awaitable[None], subject: str) -> None:
    try:
        await answer
    except BusUnavailableError as error:
        log.warning("an answer could not be sent", subject=subject, reason=str(error))
