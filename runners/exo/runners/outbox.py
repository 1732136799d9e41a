"""The way out: frames to the node, whole and in order, from whichever thread has something to say.

The only writer of the runner's real standard output. A broken pipe means that the node is gone.
"""

import os
import threading
from collections.abc import Sequence

from exo.streams.chunks import Chunk
from exo.streams.codec import encode
from exo.streams.ids import TaskId
from exo.streams.instances import RunnerStatus
from exo.streams.pipe import LENGTH_BYTES, Emitted, FromRunner, StatusChanged

NODE_GONE = 3
"""Exit status when the other end of a pipe is closed: nobody is left to report to."""


class Outbox:
    """Writes frames to a file descriptor that it owns."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, message: FromRunner) -> None:
        """Write one frame; blocks while the node does not read, ends the process when it is gone."""
        body = encode(message)
        frame = memoryview(len(body).to_bytes(LENGTH_BYTES, "big") + body)
        with self._lock:
            try:
                while frame:
                    frame = frame[os.write(self._descriptor, frame) :]
            except BrokenPipeError:
                os._exit(NODE_GONE)

    def emit(self, chunks: Sequence[tuple[TaskId, Chunk]]) -> None:
        """Send the chunks of one step in one frame; nothing at all when there are none."""
        if chunks:
            self.send(Emitted(chunks=tuple(chunks)))

    def report(self, status: RunnerStatus) -> None:
        """Tell the node how far the runner is in its life."""
        self.send(StatusChanged(status=status))
