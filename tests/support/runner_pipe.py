"""A pipe whose node side a test reads: frames of a runner that lives in the test's own process."""

import os
import threading
from collections import defaultdict

from exo.runners.outbox import Outbox
from exo.streams.chunks import TERMINAL, Chunk
from exo.streams.codec import decode_from_runner
from exo.streams.ids import TaskId
from exo.streams.pipe import LENGTH_BYTES, Emitted, FromRunner


class NodeSide:
    """Reads every frame at once and keeps it."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.outbox = Outbox(writing)
        self.frames: list[FromRunner] = []
        self.chunks: defaultdict[TaskId, list[Chunk]] = defaultdict(list)
        self._writing = writing
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=(reading,))
        self._thread.start()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb") as stream:
            while header := stream.read(LENGTH_BYTES):
                self._keep(decode_from_runner(stream.read(int.from_bytes(header, "big"))))

    def _keep(self, frame: FromRunner) -> None:
        with self._changed:
            self.frames.append(frame)
            if isinstance(frame, Emitted):
                for task, chunk in frame.chunks:
                    self.chunks[task].append(chunk)
            self._changed.notify_all()

    def wait_for_chunks(self, task: str, count: int = 1) -> list[Chunk]:
        """Wait until a task has at least `count` chunks."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.chunks[TaskId(task)]) >= count, 10), f"no chunks of {task}"
            return list(self.chunks[TaskId(task)])

    def wait_for_end(self, task: str) -> list[Chunk]:
        """Wait for the last chunk of a task; checks that numbers have no gap and that it is the only last one."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._has_ended(TaskId(task)), 10), f"{task} does not end"
            chunks = list(self.chunks[TaskId(task)])
        assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
        assert sum(isinstance(chunk, TERMINAL) for chunk in chunks) == 1
        return chunks

    def _has_ended(self, task: TaskId) -> bool:
        return bool(self.chunks[task]) and isinstance(self.chunks[task][-1], TERMINAL)

    def close(self) -> None:
        """Close the runner's end; every frame has been read afterwards."""
        os.close(self._writing)
        self._thread.join(10)
