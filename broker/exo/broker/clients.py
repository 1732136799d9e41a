"""Opening one nats-py client: its options, its callbacks, and what its failures mean.

Used by `connect.py`, which owns the client from then on.
"""

import logging
from contextlib import suppress
from typing import Final, Protocol

import nkeys
from nats import errors as nats_errors

from exo.broker.cancellation import run_apart
from exo.broker.errors import BusUnavailableError, PermissionDeniedError
from exo.broker.policy import ConnectionSettings, is_refusal, list_options
from exo.broker.wire import WireClient

CLOSE_TIMEOUT: Final = 1

# nats-py upgrades to TLS in a way that makes asyncio say this whenever a server goes away.
_NOISE: Final = "returning true from eof_received() has no effect when using ssl"
logging.getLogger("asyncio").addFilter(lambda record: record.getMessage() != _NOISE)


class Owner(Protocol):
    """Who hears what happens to a client."""

    def hear_error(self, client: WireClient, error: Exception) -> None:
        """nats-py reports something beside the calls."""
        ...

    def hear_loss(self, client: WireClient) -> None:
        """It is disconnected, and tries to come back."""
        ...

    def hear_return(self, client: WireClient) -> None:
        """It has come back."""
        ...

    def hear_end(self, client: WireClient) -> None:
        """It will not come back."""
        ...


async def dial(settings: ConnectionSettings, *, owner: Owner, patient: bool) -> WireClient:
    """Give a connected client; a patient caller tries until `open_timeout`, another one gives up at the first failure.

    `PermissionDeniedError` when the server refuses this user, else `BusUnavailableError`.
    """
    client, failures = WireClient(), _Failures(settings, patient=patient)

    async def on_error(error: Exception) -> None:
        failures.hear(error)
        owner.hear_error(client, error)

    async def on_disconnect() -> None:
        owner.hear_loss(client)

    async def on_reconnect() -> None:
        owner.hear_return(client)

    async def on_close() -> None:
        owner.hear_end(client)

    connecting = client.connect(
        **list_options(settings),
        error_cb=on_error,
        disconnected_cb=on_disconnect,
        reconnected_cb=on_reconnect,
        closed_cb=on_close,
    )
    try:
        await run_apart(connecting, timeout=settings.open_timeout)
    except BaseException as error:
        await close_client(client)
        if isinstance(error, nkeys.NkeysError):
            raise PermissionDeniedError(f"{settings.url}: the key cannot be read ({error})") from error
        if isinstance(error, TimeoutError | nats_errors.Error | OSError):
            raise failures.to_error() from error
        raise
    failures.end()
    return client


class _Failures:
    """What goes wrong before the client is connected."""

    def __init__(self, settings: ConnectionSettings, *, patient: bool) -> None:
        self._settings = settings
        self._patient = patient
        self._over = False
        self._last = "no answer"

    def end(self) -> None:
        self._over = True

    def hear(self, error: Exception) -> None:
        """Raise what is final: the only way out of nats-py's `connect`, which would try for ever."""
        if self._over:
            return
        self._last = str(error) or type(error).__name__
        if is_refusal(error):
            raise PermissionDeniedError(f"{self._settings.url}: {error}") from error
        if not self._patient:
            raise self.to_error() from error

    def to_error(self) -> BusUnavailableError:
        return BusUnavailableError(f"cannot connect to {self._settings.url}: {self._last}")


async def close_client(client: WireClient) -> None:
    """Disconnect; safe to call at any point of a client's life."""
    # nats-py asserts that it had got as far as a queue; a key it could not read ends before that.
    with suppress(TimeoutError, nats_errors.Error, OSError, AssertionError):
        await run_apart(client.close(), timeout=CLOSE_TIMEOUT)
