"""What EXO_POISON holds: a message that nobody could read or finish, and why.

Written by the work loops of both buses, read by `exo doctor` and the dashboard.
"""

import base64

import msgspec

from exo.broker.bus import StoredMessage
from exo.streams import codec, subjects


class Poisoned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A copy of the message. `text` holds a UTF-8 payload, `data` (Base64) any other. `time` is Unix ms."""

    stream: str
    subject: str
    sequence: int
    time: int
    deliveries: int
    reason: str
    text: str = ""
    data: str = ""

    def read_payload(self) -> bytes:
        """Give the payload as it was."""
        return base64.b64decode(self.data) if self.data else self.text.encode()


_decoder = msgspec.json.Decoder(Poisoned)


def poison_message(stream: str, message: StoredMessage, *, deliveries: int, reason: str) -> tuple[str, bytes]:
    """Give subject and payload of the copy."""
    try:
        text, data = message.payload.decode(), ""
    except UnicodeDecodeError:
        text, data = "", base64.b64encode(message.payload).decode()
    poisoned = Poisoned(
        stream=stream,
        subject=message.subject,
        sequence=message.sequence,
        time=message.time,
        deliveries=deliveries,
        reason=reason,
        text=text,
        data=data,
    )
    return subjects.poison(stream), codec.encode(poisoned)


def read_poisoned(payload: bytes) -> Poisoned:
    """Read a message of EXO_POISON."""
    return _decoder.decode(payload)
