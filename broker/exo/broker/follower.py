"""Following a stream without a gap, over reconnects and server restarts.

`NatsBus.follow` is this. A push consumer feeds it, held back by flow control, so nothing waits
beyond a window; every message's place is checked, because nats-py's ordered consumer loses
messages silently at its pending limit (ADR 0012, defect 3).
"""

import asyncio
from collections.abc import AsyncGenerator
from itertools import count
from typing import Any, Final

import structlog

from exo.broker.bus import StoredMessage
from exo.broker.connect import Connection
from exo.broker.errors import BusUnavailableError, NotFoundError
from exo.broker.feeds import Feed
from exo.broker.frames import Frame
from exo.broker.jetstream import SECOND, call, delete_consumer, describe_stream
from exo.broker.mailbox import Mailbox
from exo.broker.replies import read_place

log = structlog.get_logger(__name__)

HEARTBEAT: Final = 0.5
"""Seconds; with nats-py's default of 5 a restart goes unnoticed for 18 s (defect 4)."""

SILENCE: Final = 4 * HEARTBEAT
PAUSE: Final = 0.1
_CONTROL: Final = "100"

_numbers = count(1)


async def follow(connection: Connection, stream: str, *, after: int, timeout: float) -> AsyncGenerator[StoredMessage]:
    """Give every message above `after`, for ever.

    `NotFoundError` when the stream does not hold the next one any more, or ends before `after`: then
    it is not the stream that the caller knew.
    """
    while True:
        await connection.wait_ready()
        tail = Tail(connection, stream, start=after + 1, timeout=timeout)
        try:
            await check_range(connection, stream, after=after, timeout=timeout)
            await tail.open()
            while not tail.broken:
                for item in await tail.take():
                    if tail.lost:
                        break
                    if isinstance(item, str):
                        # Everything before is consumed: the server may send the next window.
                        if item:
                            await connection.send(item, b"")
                        continue
                    if item.sequence != after + 1:
                        await check_range(connection, stream, after=after, timeout=timeout)
                    yield item
                    after = item.sequence
            log.warning("following anew", stream=stream, after=after, reason=tail.broken)
        except (BusUnavailableError, TimeoutError) as error:
            if connection.closed:
                raise
            log.info("following anew", stream=stream, after=after, reason=str(error) or "silence")
            await asyncio.sleep(PAUSE)
        finally:
            await tail.close()


async def check_range(connection: Connection, stream: str, *, after: int, timeout: float) -> None:
    """Refuse a position that the stream does not continue."""
    info = (await describe_stream(connection, stream, timeout=timeout)).to_info()
    if not info.first_sequence - 1 <= after <= info.last_sequence:
        raise NotFoundError(
            f"{stream} holds {info.first_sequence} to {info.last_sequence}, which does not continue {after}"
        )


class Tail:
    """One consumer at the end of a stream; `broken` says why it can no longer be trusted.

    Gives messages, and in between the subjects to answer for flow control.
    """

    def __init__(self, connection: Connection, stream: str, *, start: int, timeout: float) -> None:
        self.broken = ""
        self._connection = connection
        self._stream = stream
        self._start = start
        self._timeout = timeout
        self._name = f"follower-{connection.inbox.rpartition('.')[2][:12]}-{next(_numbers)}"
        self._mailbox: Mailbox[StoredMessage | str] = Mailbox(connection)
        self._feed = Feed(f"{connection.inbox}.{self._name}.tail", self._hear)
        self._expected = 1
        self._made = False

    async def open(self) -> None:
        """Subscribe, then let the server send."""
        await self._connection.add(self._feed)
        body = {"stream_name": self._stream, "config": self._configure(), "action": "create"}
        await call(self._connection, f"CONSUMER.CREATE.{self._stream}.{self._name}", body, timeout=self._timeout)
        self._made = True

    def _configure(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "deliver_subject": self._feed.subject,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._start,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT * SECOND),
            "inactive_threshold": 5 * SECOND,
            "mem_storage": True,
            "num_replicas": 1,
        }

    @property
    def lost(self) -> bool:
        """Whether its connection was lost: what is left may be of another server by now."""
        return self._mailbox.lost

    async def take(self) -> list[StoredMessage | str]:
        """Give what has come; `TimeoutError` when even heartbeats stay away."""
        return await self._mailbox.take(SILENCE)

    def _hear(self, message: Frame) -> None:
        if self.broken:
            return
        if message.status == _CONTROL:
            self._hear_control(message)
            return
        place = read_place(message.reply)
        if place.consumer_sequence != self._expected:
            self._break(f"got delivery {place.consumer_sequence} instead of {self._expected}")
            return
        self._expected += 1
        self._mailbox.put(StoredMessage(message.subject, place.sequence, message.payload, place.time))

    def _hear_control(self, message: Frame) -> None:
        if message.reply:
            self._mailbox.put(message.reply)
            return
        headers = message.read_headers()
        delivered = int(headers.get("Nats-Last-Consumer", self._expected - 1))
        if delivered != self._expected - 1:
            self._break(f"the server has sent {delivered} messages, {self._expected - 1} came")
        stalled = headers.get("Nats-Consumer-Stalled")
        # An empty answer still tells the reader that the server is there.
        self._mailbox.put(stalled or "")

    def _break(self, reason: str) -> None:
        self.broken = reason
        self._mailbox.put("")

    async def close(self) -> None:
        """Leave nothing behind: unsubscribing alone would keep the consumer for seconds (defect 7)."""
        self._mailbox.close()
        await self._connection.remove(self._feed)
        if self._made and self._connection.ready:
            try:
                await delete_consumer(self._connection, self._stream, self._name, timeout=self._timeout)
            except BusUnavailableError as error:
                log.debug("a consumer is left to its inactivity limit", stream=self._stream, reason=str(error))
