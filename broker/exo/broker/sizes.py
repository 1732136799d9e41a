"""Payload sizes, checked before anything is sent."""

from typing import Final

from exo.broker.bus import Headers
from exo.broker.errors import PayloadTooLargeError
from exo.streams.layout import MAX_PAYLOAD

_HEADER_FRAME: Final = len(b"NATS/1.0\r\n\r\n")
_LINE_FRAME: Final = len(b": \r\n")


def check_size(payload: bytes, headers: Headers | None = None) -> None:
    """Refuse what is over `max_payload`.

    Headers count, and nats-py does not count them: the server would close the connection, and
    nats-py would then never reconnect.
    """
    size = len(payload)
    if headers:
        size += _HEADER_FRAME + sum(len(key) + len(value) + _LINE_FRAME for key, value in headers.items())
    if size > MAX_PAYLOAD:
        raise PayloadTooLargeError(size, limit=MAX_PAYLOAD)
