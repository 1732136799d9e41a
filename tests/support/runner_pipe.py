"""The node's side of a runner's pipe: reads every frame at once and keeps it for the test to ask."""

import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import IO, Self

from exo.runners.outbox import Outbox
from exo.streams.chunks import TERMINAL, Chunk
from exo.streams.codec import decode_from_runner, encode
from exo.streams.ids import TaskId
from exo.streams.instances import RunnerStatus
from exo.streams.pipe import LENGTH_BYTES, Beat, Emitted, FromRunner, StatusChanged, ToRunner

PATIENCE = 20
"""Seconds; two cores may be busy with other tests."""


class Frames:
    """What came out of a runner so far."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.all: list[FromRunner] = []
        self.chunks: defaultdict[TaskId, list[Chunk]] = defaultdict(list)
        self._stream = stream
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream as stream:
            while header := stream.read(LENGTH_BYTES):
                self._keep(decode_from_runner(stream.read(int.from_bytes(header, "big"))))

    def _keep(self, frame: FromRunner) -> None:
        with self._changed:
            self.all.append(frame)
            if isinstance(frame, Emitted):
                for task, chunk in frame.chunks:
                    self.chunks[task].append(chunk)
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is true of the frames."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), f"{what} did not come: {self.all[-5:]}"

    def wait_for_chunks(self, task: str, count: int = 1) -> list[Chunk]:
        """Wait until a task has at least `count` chunks."""
        self.wait_for(lambda: len(self.chunks[TaskId(task)]) >= count, f"chunk {count} of {task}")
        return list(self.chunks[TaskId(task)])

    def wait_for_end(self, task: str) -> list[Chunk]:
        """Wait for the last chunk of a task; checks that numbers have no gap and that only one is a last one."""
        chunks = self.chunks[TaskId(task)]
        self.wait_for(lambda: bool(chunks) and isinstance(chunks[-1], TERMINAL), f"the end of {task}")
        assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
        assert sum(isinstance(chunk, TERMINAL) for chunk in chunks) == 1
        return list(chunks)

    def wait_for_status(self, kind: type[RunnerStatus]) -> RunnerStatus:
        """Wait for a status of this kind."""
        self.wait_for(lambda: any(isinstance(status, kind) for status in self.statuses), kind.__name__)
        return next(status for status in self.statuses if isinstance(status, kind))

    @property
    def statuses(self) -> list[RunnerStatus]:
        return [frame.status for frame in self.all if isinstance(frame, StatusChanged)]

    @property
    def beats(self) -> list[Beat]:
        return [frame for frame in self.all if isinstance(frame, Beat)]

    def join(self) -> None:
        """Wait for the end of the stream; every frame has been read afterwards."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


class LocalPipe:
    """A runner's outbox in the test's own process, and the frames that come out of it."""

    def __init__(self) -> None:
        reading, self._writing = os.pipe()
        self.outbox = Outbox(self._writing)
        self.frames = Frames(os.fdopen(reading, "rb"))

    def close(self) -> None:
        os.close(self._writing)
        self.frames.join()


class RunnerProcess:
    """`python -m exo.runners` as a node starts it."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, *(arguments or ("-m", "exo.runners"))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout
        assert self.process.stderr
        self.frames = Frames(self.process.stdout)
        self._stderr: list[bytes] = []
        self._stderr_thread = threading.Thread(target=self._stderr.extend, args=(self.process.stderr,), daemon=True)
        self._stderr_thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, message: ToRunner) -> None:
        self.send_bytes(encode(message))

    def send_bytes(self, body: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """Close the pipe as the death of the node would."""
        assert self.process.stdin
        self.process.stdin.close()

    def wait(self) -> int:
        """Wait for the exit; give its status, with every frame and line read."""
        status = self.process.wait(PATIENCE)
        self.frames.join()
        self._stderr_thread.join(PATIENCE)
        return status

    @property
    def stderr(self) -> str:
        return b"".join(self._stderr).decode()

    def close(self) -> None:
        """End the process whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        for stream in (self.process.stdin, self.process.stderr):
            if stream and not stream.closed:
                stream.close()
