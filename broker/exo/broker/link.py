"""One proven connection to a peer: reads its frames until it ends, sends it our Hello.

Owned by `peers.py`. An Introduction comes first and is only for `admit`; the peer's Hello follows once
it has admitted us in turn.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from exo.broker.cluster_frames import (
    FrameError,
    Greeting,
    Introduction,
    Ping,
    Pong,
    Refused,
    Saying,
    Unknown,
    decode_frame,
    encode_frame,
)
from exo.broker.cluster_stream import Stream
from exo.broker.greeting import RefusedError
from exo.broker.hello import SILENCE, Hello

PATIENCE: Final = 10.0
"""Seconds until the first Hello: the peer may have to make a place for us first."""


class NotAdmittedError(ConnectionError):
    """Raised when a proven connection ended before one of the two had let the other in."""


class Link:
    """A connection that stands. `on_hello` is called for each Hello with something new, before it becomes `hello`."""

    def __init__(
        self,
        stream: Stream,
        greeting: Greeting,
        *,
        address: str,
        admit: Callable[[Hello], Awaitable[None]],
        say: Callable[[], bytes],
        on_hello: Callable[["Link", Hello], None],
        on_unknown: Callable[["Link", str], None],
        on_failure: Callable[["Link", Exception], None],
        on_settled: Callable[["Link"], None],
    ) -> None:
        self.stream = stream
        self.greeting = greeting
        self.address = address
        self.heard_at = time.monotonic()
        self.hello: Hello | None = None
        self._admit, self._say = admit, say
        self._on_hello, self._on_unknown = on_hello, on_unknown
        self._on_failure, self._on_settled = on_failure, on_settled
        self._admission: asyncio.Task[None] | None = None
        self._is_admitted = False
        self._last_hello = b""
        self.is_settled = False
        """Whether both have let the other in; a connection that ends before is a failure."""

    def is_silent(self, now: float, *, listening_since: float) -> bool:
        """Tell whether nothing came for too long, of the time in which we could have heard it."""
        patience = SILENCE if self.hello is not None else PATIENCE
        return now - max(self.heard_at, listening_since) > patience

    def say(self, frame: bytes) -> None:
        """Send our encoded Hello, if the peer was admitted; one that does not read misses it."""
        if self._is_admitted:
            self.stream.write(frame)

    async def run(self, introduction: Hello | None) -> None:
        """Read until the connection ends: by `EOFError`, `OSError`, `FrameError` or `RefusedError`."""
        try:
            if introduction is not None:
                self._receive(Introduction(introduction))
            while True:
                body = await self.stream.read_body()
                self.heard_at = time.monotonic()
                # At rest every Hello has the bytes of the one before.
                if body != self._last_hello:
                    frame = decode_frame(body)
                    self._receive(frame)
                    if isinstance(frame, Saying):
                        self._last_hello = body
        finally:
            if self._admission is not None:
                self._admission.cancel()

    def _receive(self, frame: object) -> None:
        match frame:
            case Saying(hello):
                self._check(hello)
                self._on_hello(self, hello)
                self.hello = hello
                self._settle()
            case Introduction(hello):
                self._check(hello)
                if self._admission is None:
                    self._admission = asyncio.create_task(self._prepare(hello), name="admit a peer")
            case Ping(number):
                self.stream.write(encode_frame(Pong(number)))
            case Unknown(kind):
                self._on_unknown(self, kind)
            case Refused(code, reason):
                raise RefusedError(code, reason, by_us=False, greeting=self.greeting)
            case _:
                raise FrameError(f"{type(frame).__name__} has no place here")

    def _check(self, hello: Hello) -> None:
        if (hello.node, hello.boot) != (self.greeting.node, self.greeting.boot):
            raise FrameError("the Hello is of another node than the greeting")

    async def _prepare(self, hello: Hello) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._admit(hello)
        except Exception as error:  # noqa: BLE001 - admitting is the cluster's: whatever it is, this peer stays outside
            self._on_failure(self, error)
            self.stream.abort()
            return
        self._is_admitted = True
        self.say(self._say())
        self._settle()

    def _settle(self) -> None:
        if not self.is_settled and self._is_admitted and self.hello is not None:
            self.is_settled = True
            self._on_settled(self)
