"""Storing one message in a stream and reading the server's answer."""

from typing import Final

import msgspec

from exo.broker.bus import Ack, Headers
from exo.broker.connect import Connection
from exo.broker.errors import BrokerError
from exo.broker.jetstream import ApiError, error_of
from exo.broker.sizes import check_size


class _Answer(msgspec.Struct, frozen=True):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


_answer: Final = msgspec.json.Decoder(_Answer)


async def append(
    connection: Connection, subject: str, payload: bytes, *, headers: Headers | None, timeout: float
) -> Ack:
    """Store a message.

    After `BusUnavailableError` it may be stored all the same (ADR 0012, defect 8): whoever
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
