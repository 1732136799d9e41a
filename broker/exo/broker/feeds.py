"""A core subscription that outlives its client: `Connection` starts it again on a fresh one.

Used by `connect.py`, `nats_bus.py`, `follower.py` and `consumers.py`.
"""

from collections.abc import Callable
from contextlib import suppress

from nats import errors as nats_errors
from nats.aio.subscription import Subscription

from exo.broker.errors import PermissionDeniedError
from exo.broker.frames import Frame
from exo.broker.wire import WireClient


class Feed:
    """Calls a quick handler for each message of a subject."""

    def __init__(self, subject: str, handler: Callable[[Frame], None]) -> None:
        self.subject = subject
        self.denied: PermissionDeniedError | None = None
        """Set when the server refused it; that is told after the subscription was sent."""
        self._handler = handler
        self._subscription: Subscription | None = None

    async def start(self, client: WireClient) -> None:
        """Subscribe; nats-py repeats it at each reconnect of this client."""
        self._subscription = await client.feed(self.subject, self._handler)

    async def stop(self) -> None:
        """End delivery; safe to call twice and without a connection."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(nats_errors.Error):
                await subscription.unsubscribe()
