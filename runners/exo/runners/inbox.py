"""The way in: frames from the node, read on a thread of its own for as long as the process lives.

It hands every frame to one handler and never works on one itself. End of file means that the node
is gone: the process ends at once, even when a step hangs.
"""

import os
import threading
from collections.abc import Callable
from typing import BinaryIO

import structlog

from exo.runners.outbox import NODE_GONE
from exo.streams.codec import CodecError, decode_to_runner
from exo.streams.pipe import LENGTH_BYTES, MAX_FRAME, ToRunner

log = structlog.get_logger(__name__)

BAD_FRAME = 4
"""Exit status when the node sends what is not a frame: the pipe cannot be trusted any more."""


class Inbox:
    """Reads frames from a buffered stream."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self) -> ToRunner | None:
        """Wait for one message; None at the end of the stream. `CodecError` for what is no frame."""
        header = self._stream.read(LENGTH_BYTES)
        if len(header) < LENGTH_BYTES:
            return None
        length = int.from_bytes(header, "big")
        if length > MAX_FRAME:
            raise CodecError(f"a frame of {length} bytes is over the limit of {MAX_FRAME}")
        body = self._stream.read(length)
        return decode_to_runner(body) if len(body) == length else None

    def listen(self, handle: Callable[[ToRunner], None]) -> None:
        """Start the thread that calls `handle` for each message."""
        threading.Thread(target=self._listen, args=(handle,), name="inbox", daemon=True).start()

    def _listen(self, handle: Callable[[ToRunner], None]) -> None:
        try:
            while (message := self.read()) is not None:
                handle(message)
        except Exception:
            log.exception("the pipe from the node broke")
            os._exit(BAD_FRAME)
        log.info("the node is gone")
        os._exit(NODE_GONE)
