"""Storing one message in a stream and reading the server's answer."""

from typing import Final

import msgspec

from exo.broker.bus import Ack, Headers
from exo.broker.connect import Connection
from exo.broker.errors import BrokerError, PayloadTooLargeError
from exo.broker.jetstream import ApiError, error_of
from exo.streams.layout import MAX_PAYLOAD

_HEADER_FRAME: Final = len(b"NATS/1.0\r\n\r\n")
_LINE_FRAME: Final = len(b": \r\n")


class _Answer(msgspec.Struct, frozen=True):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


_answer: Final = msgspec.json.Decoder(_Answer)


def check_size(payload: bytes, headers: Headers | None = None) -> None:
    """Refuse what is over `max_payload` before it is sent.

    Headers count, and nats-py does not count them: the server would close the connection, and
    nats-py would then never reconnect.
    """
    size = len(payload)
    if headers:
        size += _HEADER_FRAME + sum(len(key) + len(value) + _LINE_FRAME for key, value in headers.items())
    if size > MAX_PAYLOAD:
        raise PayloadTooLargeError(size, limit=MAX_PAYLOAD)


async def append(
    connection: Connection, subject: str, payload: bytes, *, headers: Headers | None, timeout: float
) -> Ack:
    """Store a message.

    After `BusUnavailableError` it may be stored all the same (nats.md section 2, defect 8): whoever
    repeats it gives it a message id.
    """
    check_size(payload, headers)
    reply = await connection.request(subject, payload, headers=headers, timeout=timeout)
    try:
        answer = _answer.decode(reply.payload)
    except msgspec.DecodeError as error:
        raise BrokerError(f"{subject} is answered by something that is no stream") from error
    if answer.error is not None:
        raise error_of(answer.error, what=subject)
    return Ack(answer.stream, answer.seq, answer.duplicate)
