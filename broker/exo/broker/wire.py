"""nats-py's client with a short cut: messages go straight from our parser to our handlers.

Its own way makes a header dictionary, a `Msg`, a bounded queue and a task of each subscription: five
times the cost, and what does not fit the queue is dropped. Used by `connect.py` only.
"""

from collections.abc import Callable

import structlog
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from exo.broker.frames import Frame, FrameParser

log = structlog.get_logger(__name__)


class WireClient(Client):
    """A nats-py client whose subscriptions are made by `feed` and bypass its queues."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: dict[int, Callable[[Frame], None]] = {}
        self._ps = FrameParser(self, self._dispatch)

    async def feed(self, subject: str, handler: Callable[[Frame], None]) -> Subscription:
        """Call `handler` for each message, in order, from the reading task; it must be quick."""
        # `subscribe` takes the next number before it first awaits; a message may come before it returns.
        self._handlers[self._sid + 1] = handler
        return await self.subscribe(subject)  # pyright: ignore[reportUnknownMemberType]

    def mute(self) -> None:
        """Deliver nothing any more, not even what has arrived already."""
        self._handlers.clear()

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._handlers.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    def _dispatch(self, sid: int, frame: Frame) -> None:
        handler = self._handlers.get(sid)
        if handler is None:
            # Of a subscription that was just ended.
            return
        try:
            handler(frame)
        except Exception:
            # Beyond this line it would end nats-py's reading task.
            log.exception("handler failed", subject=frame.subject)
