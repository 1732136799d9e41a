"""Dials what the address book says is due, for as long as the node runs. Used by `peers.py`."""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import structlog

from exo.broker.address_book import REFUSED, AddressBook
from exo.broker.addresses import Address
from exo.broker.certificates import trusting_context
from exo.broker.cluster_frames import FrameError, Greeting
from exo.broker.cluster_stream import Stream, dial
from exo.broker.greeting import Party, RefusedError, greet_as_client
from exo.broker.link import NotAdmittedError
from exo.broker.name_lookups import NameLookups
from exo.broker.peer_notes import Notes, now_ms
from exo.broker.peering import NOBODY
from exo.streams.ids import NodeId

log = structlog.get_logger(__name__)

LONGEST_WAIT: Final = 10.0


class Dialler:
    """One loop that starts attempts. `meet` owns a stream to a proven member until the connection ends."""

    def __init__(
        self,
        book: AddressBook,
        *,
        party: Callable[[], Party],
        connected: Callable[[], Collection[NodeId]],
        meet: Callable[[Stream, Greeting, Address], Awaitable[None]],
        notes: Notes,
    ) -> None:
        self._book, self._party, self._connected = book, party, connected
        self._meet, self._notes = meet, notes
        self._context = trusting_context()
        self._lookups = NameLookups()
        self._wake = asyncio.Event()
        self._attempts: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Look at the book again: something is due, or somebody came or went."""
        self._wake.set()

    async def run(self) -> None:
        """Dial until cancelled; every attempt and every connection it made end with it."""
        try:
            while True:
                self._wake.clear()
                for address in self._book.take_due(time.monotonic(), connected=self._connected()):
                    task = asyncio.create_task(self._try(address), name=f"dial {address}")
                    self._attempts.add(task)
                    task.add_done_callback(self._attempts.discard)
                due = self._book.find_next(connected=self._connected())
                pause = LONGEST_WAIT if due is None else min(max(due - time.monotonic(), 0.01), LONGEST_WAIT)
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            for task in self._attempts:
                task.cancel()
            await asyncio.gather(*self._attempts, return_exceptions=True)

    async def open(self, address: Address, *, purpose: str, use: Callable[[Stream, Greeting], Awaitable[None]]) -> None:
        """Connect, greet and use one connection, or raise as `dial` and `greet_as_client` do."""
        async with dial(address, self._context, lookups=self._lookups) as stream:
            greeting = await greet_as_client(stream, self._party(), purpose=purpose)
            await use(stream, greeting)

    async def _try(self, address: Address) -> None:
        async def use(stream: Stream, greeting: Greeting) -> None:
            self._book.meet(address, node=greeting.node, at=now_ms())
            await self._meet(stream, greeting, address)

        try:
            await self.open(address, purpose="peer", use=use)
        except RefusedError as error:
            self._hear_refusal(address, error)
        except (OSError, EOFError, FrameError) as error:
            outcome, detail = describe_failure(error)
            if self._book.fail(address, outcome, detail, at=now_ms()):
                log.info("cannot reach an address", address=str(address), outcome=outcome, reason=detail)
        except Exception:
            log.exception("dialling failed", address=str(address))
            self._book.fail(address, "internal", "see the log", at=now_ms())
        finally:
            self._book.rest(address, now=time.monotonic())
            self._wake.set()

    def _hear_refusal(self, address: Address, error: RefusedError) -> None:
        node = error.greeting.node if error.greeting else NOBODY
        if error.code == "connected":
            self._book.meet(address, node=node, at=now_ms())
            return
        self._book.fail(address, error.code, error.reason, at=now_ms())
        self._notes.refuse(error, address=str(address))


def describe_failure(error: Exception) -> tuple[str, str]:
    """Give the kind of a failure and what a person can read about it."""
    outcome, detail = "unreachable", getattr(error, "strerror", None) or str(error)
    match error:
        case NotAdmittedError():
            outcome = "not_admitted"
        case TimeoutError():
            outcome, detail = "timeout", detail or "no answer in time"
        case socket.gaierror():
            outcome = "name_unknown"
        case ssl.SSLError():
            outcome, detail = "tls", error.reason or detail
        case ConnectionRefusedError():
            outcome, detail = REFUSED, "nothing listens there"
        case EOFError() | ConnectionError():
            outcome, detail = "connection_lost", "the other end closed the connection"
        case FrameError():
            outcome = "protocol"
        case _:
            pass
    return outcome, detail
