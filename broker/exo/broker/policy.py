"""The connection policy: the values that nats-py needs on a LAN, and what its errors mean to us.

nats-py's own defaults notice a dead peer after four minutes and give up reconnecting (ADR 0012,
defect 6). Used by `connect.py`.
"""

import re
from typing import Any, Final

import msgspec
from nats import errors as nats_errors

from exo.broker.certificates import TlsFiles
from exo.broker.errors import BrokerError, BusUnavailableError, PayloadTooLargeError, PermissionDeniedError

PING_INTERVAL: Final = 2
OUTSTANDING_PINGS: Final = 2
RECONNECT_WAIT: Final = 0.1
CONNECT_TIMEOUT: Final = 2
PENDING_SIZE: Final = 64 * 1024 * 1024
"""Bytes that `publish` buffers while there is no connection."""


class ConnectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where and as whom to connect. `seed` is an nkey seed, `inbox` the prefix of the reply subjects of its role.

    `name` shows in the monitoring. With `tls` both sides prove themselves by the cluster's certificate.
    """

    url: str
    name: str
    seed: str = ""
    inbox: str = ""
    tls: TlsFiles | None = None
    open_timeout: float = 10.0


def list_options(settings: ConnectionSettings) -> dict[str, Any]:
    """Give the options of `nats.aio.client.Client.connect`, callbacks aside."""
    options: dict[str, Any] = {
        "servers": [settings.url],
        "name": settings.name,
        "allow_reconnect": True,
        "connect_timeout": CONNECT_TIMEOUT,
        "reconnect_time_wait": RECONNECT_WAIT,
        "max_reconnect_attempts": -1,
        "ping_interval": PING_INTERVAL,
        "max_outstanding_pings": OUTSTANDING_PINGS,
        "pending_size": PENDING_SIZE,
        "inbox_prefix": inbox_prefix(settings),
        # exo.streams.subjects builds every subject; checking it again costs a microsecond per token.
        "skip_subject_validation": True,
    }
    if settings.seed:
        options["nkeys_seed_str"] = settings.seed
    if settings.tls is not None:
        options["tls"] = settings.tls.client_context()
        options["tls_handshake_first"] = True
    return options


def inbox_prefix(settings: ConnectionSettings) -> str:
    """Give the prefix of a client's reply subjects: its role's, or one made of its name."""
    return settings.inbox or "_INBOX." + re.sub(r"[^a-zA-Z0-9]", "-", settings.name)


class Denial(msgspec.Struct, frozen=True):
    """The server refused one subject. Subjects are lower case here, because nats-py lowers the server's text."""

    action: str
    subject: str

    def to_error(self) -> PermissionDeniedError:
        return PermissionDeniedError(f"not permitted: {self.action} on {self.subject}")


_DENIAL = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE)


def read_denial(error: Exception) -> Denial | None:
    """Find a permission violation in what nats-py reports; the request itself would only time out (defect 5)."""
    match = _DENIAL.search(str(error))
    return Denial(match[1].lower(), match[2].lower()) if match else None


def is_refusal(error: Exception) -> bool:
    """Tell whether the server turned this user away."""
    return isinstance(error, nats_errors.AuthorizationError) or "authorization violation" in str(error).lower()


def translate(error: nats_errors.Error, *, subject: str, size: int = 0, limit: int = 0) -> BrokerError:
    """Turn an error of nats-py into ours."""
    if isinstance(error, nats_errors.MaxPayloadError):
        return PayloadTooLargeError(size, limit=limit)
    if is_refusal(error):
        return PermissionDeniedError(f"{subject}: {error}")
    if isinstance(error, nats_errors.OutboundBufferLimitError):
        return BusUnavailableError("not connected for too long: the buffer for publishing is full")
    return BusUnavailableError(f"{subject}: {error}" if subject else str(error))
