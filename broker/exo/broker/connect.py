"""One connection to nats-server, kept alive: opened, watched, restored, its requests matched to replies.

`NatsBus` is built on it. It uses only nats-py's core client; JetStream is spoken in `jetstream.py`,
because nats-py's own layer has the defects that ADR 0012 lists.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Final

import structlog
from nats import errors as nats_errors

from exo.broker.clients import CLOSE_TIMEOUT, close_client, dial
from exo.broker.errors import BrokerError, BusUnavailableError, NoResponderError
from exo.broker.feeds import Feed
from exo.broker.frames import Frame
from exo.broker.listeners import Listeners
from exo.broker.policy import ConnectionSettings, inbox_prefix, read_denial, translate
from exo.broker.waiting import Waiter, Waiters, is_always_last
from exo.broker.wire import WireClient
from exo.streams.ids import new_boot_id

log = structlog.get_logger(__name__)

RESTORE_PAUSE: Final = 0.1
NO_RESPONDERS: Final = "503"


class Connection:
    """A client that comes back by itself.

    `restore` runs after each reconnect, before anybody is told of it: memory streams vanish with the
    server and must be there again when services return to work.
    """

    def __init__(
        self, settings: ConnectionSettings, *, restore: Callable[["Connection"], Awaitable[None]] | None = None
    ) -> None:
        self.settings = settings
        self.client = WireClient()
        self.inbox = f"{inbox_prefix(settings)}.{new_boot_id()}"
        self._restore_hook = restore
        self._ready = asyncio.Event()
        self._closing = self._held = False
        self._listeners = Listeners[bool]("the connection")
        self._waiters = Waiters()
        self._feeds = {Feed(f"{self.inbox}.*", self._waiters.accept)}
        self._tokens = count(1)
        self._last_error = ""
        self._task: asyncio.Task[None] | None = None

    # Life.

    async def open(self) -> None:
        """Connect, or raise `PermissionDeniedError` when refused, `BusUnavailableError` when nobody answers in time."""
        try:
            client = await dial(self.settings, owner=self, patient=True)
        except BaseException:
            self._closing = True
            raise
        await self._adopt(client)
        self._ready.set()

    async def move(self, settings: ConnectionSettings) -> None:
        """Go over to another server and make every subscription there; also the first connection to any.

        Fails like `open`, but at the first refusal of the address, and then leaves the old connection
        as it is. Listeners hear False, then True once the other server is restored; requests that wait
        fail; nothing of the old server is delivered any more.
        """
        client = await dial(settings, owner=self, patient=False)
        self.settings, self._held = settings, False
        self._lose()
        await self._adopt(client)
        self._run(self._restore)
        await self.wait_ready(settings.open_timeout)

    def hold(self) -> None:
        """Act as if the connection were lost: nobody gets through until `release` or `move`."""
        self._held = True
        self._lose()

    def release(self) -> None:
        """End `hold`."""
        if self._held:
            self._held = False
            if self.client.is_connected:
                self._run(self._restore)

    async def leave(self) -> None:
        """Disconnect from a server that is not ours any more; only `move` leads to one again."""
        self.hold()
        old, self.client = self.client, WireClient()
        old.mute()
        await close_client(old)

    async def _adopt(self, client: WireClient) -> None:
        """Let everything go through this client from now on."""
        old, self.client = self.client, client
        old.mute()
        for feed in tuple(self._feeds):
            await feed.start(client)
        if not old.is_closed:
            await close_client(old)

    # What the client reports; `clients.Owner`.

    def hear_error(self, client: WireClient, error: Exception) -> None:
        """Sort what nats-py reports beside the calls."""
        denial = read_denial(error)
        if denial is None or client is not self.client:
            self._note_error(error)
            return
        log.error("the broker refused a subject", action=denial.action, subject=denial.subject)
        self._waiters.deny(denial, inbox=self.inbox)
        if denial.action == "subscription":
            for feed in self._feeds:
                if feed.subject.lower() == denial.subject:
                    feed.denied = denial.to_error()

    def hear_loss(self, client: WireClient) -> None:
        if client is self.client:
            self._lose()

    def hear_return(self, client: WireClient) -> None:
        if client is self.client:
            self._run(self._restore)

    def hear_end(self, client: WireClient) -> None:
        # Some errors make nats-py close for good (`Client._process_err`); we do not give up.
        if client is self.client and not self._closing:
            self._run(self._reopen)

    def _lose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._waiters.fail(lambda: BusUnavailableError("the connection to the broker was lost"))
        if self._ready.is_set():
            self._ready.clear()
            if not self._closing:
                log.warning("lost the connection to the broker", client=self.settings.name)
            self._listeners.tell(False)

    async def _restore(self) -> None:
        while self._restore_hook is not None:
            try:
                await self._restore_hook(self)
                break
            except BrokerError as error:
                self._note_error(error)
                await asyncio.sleep(RESTORE_PAUSE)
        self._last_error = ""
        if self._held or self._ready.is_set():
            return
        self._ready.set()
        log.info("connected to the broker", client=self.settings.name)
        self._listeners.tell(True)

    async def _reopen(self) -> None:
        log.error("the broker closed the connection", client=self.settings.name, reason=self._last_error)
        while True:
            await asyncio.sleep(RESTORE_PAUSE)
            try:
                client = await dial(self.settings, owner=self, patient=True)
                break
            except BrokerError as error:
                self._note_error(error)
        await self._adopt(client)
        await self._restore()

    def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Let one task at a time bring the connection back."""
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(_guard(work), name="broker connection")

    def _note_error(self, error: Exception) -> None:
        # The same refusal ten times a second is one line.
        if str(error) != self._last_error:
            self._last_error = str(error)
            log.warning("broker connection", reason=str(error), kind=type(error).__name__)

    async def close(self) -> None:
        """Send what is buffered, then disconnect; safe to call twice."""
        if self._closing:
            return
        self._closing = True
        if self.client.is_connected:
            with suppress(BrokerError):
                await self.flush(CLOSE_TIMEOUT)
        self._lose()
        await close_client(self.client)

    # State.

    @property
    def ready(self) -> bool:
        """Connected, and everything restored."""
        return self._ready.is_set()

    @property
    def closed(self) -> bool:
        return self._closing

    def on_change(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        """Call `listener(ready)` at each change; gives a function that ends it."""
        return self._listeners.add(listener)

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until connected; `BusUnavailableError` after `timeout` seconds (None: never) or once closed."""
        if self._ready.is_set():
            return
        if self._closing:
            raise BusUnavailableError("the bus is closed")
        try:
            async with asyncio.timeout(timeout):
                await self._ready.wait()
        except TimeoutError as error:
            reason = self._last_error or "no answer"
            raise BusUnavailableError(f"not connected to the broker: {reason}") from error

    # Traffic. None of it waits for `ready`: the restore hook goes through here.

    async def send(
        self, subject: str, payload: bytes, *, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish without waiting."""
        try:
            await self.client.publish(subject, payload, reply, dict(headers) if headers else None)
        except nats_errors.Error as error:
            raise translate(error, subject=subject, size=len(payload), limit=self.client.max_payload) from error

    async def add(self, feed: Feed) -> Feed:
        """Start a feed and keep it over reconnects and moves."""
        try:
            await feed.start(self.client)
        except nats_errors.Error as error:
            raise translate(error, subject=feed.subject) from error
        self._feeds.add(feed)
        return feed

    async def remove(self, feed: Feed) -> None:
        """End a feed; safe to call twice."""
        self._feeds.discard(feed)
        await feed.stop()

    async def flush(self, timeout: float) -> None:
        """Wait until the server has everything that was sent.

        By a message to ourselves: the PING of nats-py's `flush` overtakes what waits in its buffer.
        """
        token = str(next(self._tokens))
        await self._await_replies(f"{self.inbox}.{token}", b"", token=token, timeout=timeout, is_last=is_always_last)

    async def request(
        self, subject: str, payload: bytes, *, timeout: float, headers: Mapping[str, str] | None = None
    ) -> Frame:
        """Give the reply; `NoResponderError` at once when nobody listens."""
        replies = await self.collect(subject, payload, timeout=timeout, headers=headers, is_last=is_always_last)
        return replies[0]

    async def collect(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout: float,
        is_last: Callable[[Frame], bool],
        headers: Mapping[str, str] | None = None,
    ) -> list[Frame]:
        """Give all replies up to the one that `is_last` names."""
        token = str(next(self._tokens))
        replies = await self._await_replies(
            subject, payload, token=token, timeout=timeout, is_last=is_last, headers=headers
        )
        if replies[0].status == NO_RESPONDERS:
            raise NoResponderError(f"nobody answers on {subject}")
        return replies

    async def _await_replies(
        self,
        subject: str,
        payload: bytes,
        *,
        token: str,
        timeout: float,
        is_last: Callable[[Frame], bool],
        headers: Mapping[str, str] | None = None,
    ) -> list[Frame]:
        waiter = Waiter(subject, is_last)
        with self._waiters.hold(token, waiter):
            await self.send(subject, payload, reply=f"{self.inbox}.{token}", headers=headers)
            try:
                async with asyncio.timeout(timeout):
                    return await waiter.done
            except TimeoutError as error:
                raise BusUnavailableError(f"no answer on {subject} in {timeout:g} s") from error


async def _guard(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except Exception:
        log.exception("broker connection failed")
