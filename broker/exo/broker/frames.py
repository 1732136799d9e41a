"""Messages as nats-server sends them, cut out of the byte stream by hand.

nats-py's parser costs more than all the rest of a message's way: two regular expressions, a state
machine and three copies. Used by `wire.py`.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from nats.aio.client import Client
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

_VERSION: Final = b"NATS/1.0"
_LINE_END: Final = b"\r\n"
_LONGEST_LINE: Final = 64 * 1024
"""An INFO line holds a few hundred bytes, a control line at most 4 KB."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One message as it came; `headers` is the raw block, empty when there are none."""

    subject: str
    reply: str
    payload: bytes
    headers: bytes = b""

    @property
    def status(self) -> str:
        """The three digits of a control message or of the end of a batch; empty for data."""
        return self.headers[9:12].decode() if self.headers[8:9] == b" " else ""

    @property
    def description(self) -> str:
        """What follows the status."""
        return self.headers.partition(b"\r\n")[0][13:].decode(errors="replace")

    def read_headers(self) -> Mapping[str, str]:
        """Parse the headers; each call does it anew."""
        return read_headers(self.headers)


def read_headers(block: bytes) -> dict[str, str]:
    """Parse a block: the line with version and perhaps a status, then a line for each header."""
    found: dict[str, str] = {}
    for line in block.removeprefix(_VERSION).split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found[name.strip().decode(errors="replace")] = value.strip().decode(errors="replace")
    return found


class FrameParser(Parser):
    """Cuts MSG and HMSG out itself and leaves every other line to nats-py."""

    def __init__(self, client: Client, dispatch: Callable[[int, Frame], None]) -> None:
        self._dispatch = dispatch
        self._pieces: list[bytes] = []
        self._held = self._needed = 0
        super().__init__(client)  # pyright: ignore[reportUnknownMemberType]

    def reset(self) -> None:
        super().reset()
        self._hold(b"", needed=0)

    async def parse(self, data: bytes = b"") -> None:
        """Take in what came from the socket and hand on what is complete."""
        if self._held:
            # A large message comes in many pieces: joined once, not at each of them.
            self._pieces.append(data)
            self._held += len(data)
            if self._held < self._needed:
                return
            data = b"".join(self._pieces)
        position = needed = 0
        while not needed:
            end = data.find(_LINE_END, position)
            if end < 0:
                break
            if not data.startswith((b"MSG ", b"HMSG "), position):
                data = await self._leave_to_library(data[position : end + 2], data[end + 2 :])
                position = 0
                continue
            after = self._cut(data, position, end)
            if after > len(data):
                needed = after - position
            else:
                position = after
        rest = data[position:]
        if not needed and len(rest) > _LONGEST_LINE:
            raise ProtocolError
        self._hold(rest, needed=needed)

    async def _leave_to_library(self, line: bytes, rest: bytes) -> bytes:
        """Gives what is still to be read: nothing if the line ended this connection."""
        self._hold(rest, needed=0)
        await super().parse(line)
        return b"".join(self._pieces)

    def _cut(self, data: bytes, position: int, end: int) -> int:
        """Dispatch the message at a position if all of it is there; gives where the next thing begins."""
        fields = data[position:end].split()
        with_headers = fields[0] == b"HMSG"
        try:
            start = border = end + 2
            after = start + int(fields[-1]) + 2
            if after > len(data):
                return after
            if with_headers:
                border = start + int(fields[-2])
            reply = fields[3] if len(fields) == (6 if with_headers else 5) else b""
            sid, subject = int(fields[2]), fields[1]
        except (ValueError, IndexError) as error:
            raise ProtocolError from error
        self._dispatch(sid, Frame(subject.decode(), reply.decode(), data[border : after - 2], data[start:border]))
        return after

    def _hold(self, rest: bytes, *, needed: int) -> None:
        self._pieces = [rest] if rest else []
        self._held, self._needed = len(rest), needed
