"""The work loop: one message of a work queue at a time, held until it is settled.

`NatsBus.work` is this. A durable pull consumer with explicit acknowledgement; the delivery limit is
kept here and not by the server, which would just leave the message lying there.
"""

import asyncio
from collections.abc import AsyncGenerator
from itertools import count
from typing import Final

import msgspec
import structlog

from exo.broker.appending import append
from exo.broker.bus import StoredMessage, WorkItem
from exo.broker.connect import Connection
from exo.broker.errors import BusUnavailableError
from exo.broker.feeds import Feed
from exo.broker.frames import Frame
from exo.broker.jetstream import API, SECOND, call
from exo.broker.mailbox import Mailbox
from exo.broker.poison import poison_message
from exo.broker.replies import read_place
from exo.streams import envelope

log = structlog.get_logger(__name__)

EXPIRES: Final = 10
"""Seconds that one pull waits at the server."""

PATIENCE: Final = 3
PAUSE: Final = 0.1
_NO_RESPONDERS: Final = "503"

_numbers = count(1)


class WorkQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Which queue, read how. Times in seconds."""

    stream: str
    name: str
    ack_wait: float
    max_deliver: int
    timeout: float


async def work(connection: Connection, queue: WorkQueue) -> AsyncGenerator[WorkItem]:
    """Give the queue's messages one at a time, for ever."""
    while True:
        await connection.wait_ready()
        puller = Puller(connection, queue)
        try:
            await puller.open()
            while True:
                message = await puller.pull()
                if message is None:
                    continue
                item = NatsWorkItem(connection, queue, message)
                if item.deliveries > queue.max_deliver:
                    await item.term(f"delivered more than {queue.max_deliver} times")
                else:
                    yield item
        except (BusUnavailableError, TimeoutError) as error:
            if connection.closed:
                raise
            log.info("pulling anew", stream=queue.stream, reason=str(error) or "silence")
            await asyncio.sleep(PAUSE)
        finally:
            await puller.close()


class Puller:
    """The pull side of a durable consumer.

    Replies come to a subject of its own: once that is unsubscribed the server forgets a waiting
    pull, instead of giving a message to nobody and redelivering it after `ack_wait`.
    """

    def __init__(self, connection: Connection, queue: WorkQueue) -> None:
        self._connection = connection
        self._queue = queue
        self._mailbox: Mailbox[Frame] = Mailbox(connection)
        self._feed = Feed(f"{connection.inbox}.pull.{next(_numbers)}", self._mailbox.put)

    async def open(self) -> None:
        """Make the consumer, or bring it to these settings."""
        queue = self._queue
        config = {
            "name": queue.name,
            "durable_name": queue.name,
            "ack_policy": "explicit",
            "ack_wait": int(queue.ack_wait * SECOND),
            "deliver_policy": "all",
            "replay_policy": "instant",
            "max_deliver": -1,
            "max_ack_pending": 256,
            "num_replicas": 0,
        }
        body = {"stream_name": queue.stream, "config": config}
        await call(self._connection, f"CONSUMER.CREATE.{queue.stream}.{queue.name}", body, timeout=queue.timeout)
        await self._connection.add(self._feed)

    async def pull(self) -> Frame | None:
        """Give the next message; None when there was none for a while."""
        request = msgspec.json.encode({"batch": 1, "expires": EXPIRES * SECOND})
        subject = f"{API}.CONSUMER.MSG.NEXT.{self._queue.stream}.{self._queue.name}"
        await self._connection.send(subject, request, reply=self._feed.subject)
        message = (await self._mailbox.take(EXPIRES + PATIENCE))[0]
        if message.status == _NO_RESPONDERS:
            raise BusUnavailableError(f"consumer {self._queue.name} is gone")
        return None if message.status else message

    async def close(self) -> None:
        self._mailbox.close()
        await self._connection.remove(self._feed)


class NatsWorkItem:
    """A message of a work queue and the subject on which it is settled."""

    def __init__(self, connection: Connection, queue: WorkQueue, message: Frame) -> None:
        place = read_place(message.reply)
        self.message = StoredMessage(message.subject, place.sequence, message.payload, place.time)
        self.deliveries = place.deliveries
        self._connection = connection
        self._queue = queue
        self._reply = message.reply

    async def ack(self) -> None:
        await self._settle(b"+ACK")

    async def nak(self, *, delay: float = 0) -> None:
        order = msgspec.json.encode({"delay": int(delay * SECOND)}) if delay else b""
        await self._connection.send(self._reply, b"-NAK " + order)

    async def term(self, reason: str) -> None:
        queue = self._queue
        subject, payload = poison_message(queue.stream, self.message, deliveries=self.deliveries, reason=reason)
        message_id = f"{queue.stream}-{self.message.sequence}-{self.message.time}"
        await append(
            self._connection, subject, payload, headers={envelope.MESSAGE_ID: message_id}, timeout=queue.timeout
        )
        log.warning("message poisoned", stream=queue.stream, sequence=self.message.sequence, reason=reason)
        await self._settle(b"+TERM")

    async def in_progress(self) -> None:
        await self._connection.send(self._reply, b"+WPI")

    async def _settle(self, order: bytes) -> None:
        """Wait until the server has it: a lost acknowledgement is work done twice."""
        await self._connection.request(self._reply, order, timeout=self._queue.timeout)
