"""A core subscription that outlives its client: `Connection` starts it again on a fresh one.

Used by `connect.py`, `nats_bus.py` and `follower.py`.
"""

from collections.abc import Callable
from contextlib import suppress

import structlog
from nats import errors as nats_errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

log = structlog.get_logger(__name__)

UNLIMITED = 0


class Feed:
    """Calls a quick handler for each message of a subject.

    `pending_messages` and `pending_bytes` bound what may wait for the handler before nats-py drops
    messages; `UNLIMITED` where the sender is held back in another way.
    """

    def __init__(
        self,
        subject: str,
        handler: Callable[[Msg], None],
        *,
        pending_messages: int = UNLIMITED,
        pending_bytes: int = UNLIMITED,
    ) -> None:
        self.subject = subject
        self.stopped = False
        self._handler = handler
        self._pending_messages = pending_messages
        self._pending_bytes = pending_bytes
        self._subscription: Subscription | None = None

    async def start(self, client: Client) -> None:
        """Subscribe; nats-py repeats it at each reconnect of this client."""
        self._subscription = await client.subscribe(  # pyright: ignore[reportUnknownMemberType]
            self.subject,
            cb=self._deliver,
            pending_msgs_limit=self._pending_messages,
            pending_bytes_limit=self._pending_bytes,
        )

    async def _deliver(self, message: Msg) -> None:
        if self.stopped:
            return
        try:
            self._handler(message)
        except Exception:
            log.exception("handler failed", subject=message.subject)

    async def stop(self) -> None:
        """End delivery; safe to call twice and without a connection."""
        self.stopped = True
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(nats_errors.Error):
                await subscription.unsubscribe()
