"""Requests that wait for their replies, by the last token of their inbox. Owned by `connect.py`.

nats-py's own `request` lets a refused publish run into its timeout; here a refusal or a lost
connection ends the wait at once.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from exo.broker.errors import BrokerError
from exo.broker.frames import Frame
from exo.broker.policy import Denial


def is_always_last(_reply: Frame) -> bool:
    """For requests with one reply."""
    return True


class Waiter:
    """One request; `done` gives its replies."""

    def __init__(self, subject: str, is_last: Callable[[Frame], bool]) -> None:
        self.subject = subject
        self.done: asyncio.Future[list[Frame]] = asyncio.get_running_loop().create_future()
        self._replies: list[Frame] = []
        self._is_last = is_last

    def accept(self, reply: Frame) -> None:
        self._replies.append(reply)
        if self._is_last(reply) and not self.done.done():
            self.done.set_result(self._replies)

    def fail(self, error: BrokerError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Waiters:
    """All requests of a connection that are on their way."""

    def __init__(self) -> None:
        self._held: dict[str, Waiter] = {}

    @contextmanager
    def hold(self, token: str, waiter: Waiter) -> Generator[None]:
        """Keep a request while its caller waits."""
        self._held[token] = waiter
        try:
            yield
        finally:
            del self._held[token]
            # A failure that nobody awaits any more is not worth asyncio's complaint.
            if not waiter.done.cancel() and not waiter.done.cancelled():
                waiter.done.exception()

    def accept(self, reply: Frame) -> None:
        """Hand a reply to its request; late ones have none."""
        waiter = self._held.get(reply.subject.rpartition(".")[2])
        if waiter is not None:
            waiter.accept(reply)

    def fail(self, make_error: Callable[[], BrokerError]) -> None:
        """End all waits."""
        for waiter in tuple(self._held.values()):
            waiter.fail(make_error())

    def deny(self, denial: Denial, *, inbox: str) -> None:
        """End the waits on a refused subject; a refused inbox concerns all of them."""
        concerns_all = denial.action == "subscription" and denial.subject.startswith(inbox.lower())
        for waiter in tuple(self._held.values()):
            if concerns_all or (denial.action == "publish" and waiter.subject.lower() == denial.subject):
                waiter.fail(denial.to_error())
