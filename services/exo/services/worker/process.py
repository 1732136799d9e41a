"""One runner process: start it, exchange frames with it, end it, and say how it ended.

Used by the supervisor. The process leads its own group, so that ending it ends its children too; it
notices the end of this process by the end of its standard input.
"""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator

import msgspec
import structlog

from exo.streams.codec import decode_from_runner, encode
from exo.streams.pipe import LENGTH_BYTES, MAX_FRAME, FromRunner, ToRunner

log = structlog.get_logger(__name__)

_KEPT_LINES = 20
_LONGEST_LINE = 500
_BUFFER = 1 << 20
_TERMINATE_AFTER = 3.0
_KILL_AFTER = 3.0


class Exit(msgspec.Struct, frozen=True):
    """How a process ended: `cause` is a sentence, `evidence` the last lines of its standard error."""

    status: int
    cause: str
    evidence: tuple[str, ...]


class FrameError(Exception):
    """Raised when a runner writes something that is not a frame."""


class RunnerProcess:
    """Made by `start_runner`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._stderr = asyncio.create_task(self._collect_lines())
        self._killed_because = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, frame: ToRunner) -> None:
        """Write one frame; a process that is gone is noticed elsewhere, by the end of its output."""
        assert self._process.stdin is not None
        body = encode(frame)
        # uvloop raises RuntimeError where asyncio is silent: the pipe was closed at our end.
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
            await self._process.stdin.drain()

    async def frames(self) -> AsyncIterator[FromRunner]:
        """Give its frames until its output ends; `FrameError` or `CodecError` when one cannot be read."""
        assert self._process.stdout is not None
        reader = self._process.stdout
        while True:
            try:
                head = await reader.readexactly(LENGTH_BYTES)
                length = int.from_bytes(head, "big")
                if length > MAX_FRAME:
                    raise FrameError(f"the runner wrote a frame of {length} bytes")
                body = await reader.readexactly(length)
            except asyncio.IncompleteReadError:
                return
            yield decode_from_runner(body)

    def kill(self, because: str) -> None:
        """End the whole group at once; `because` becomes the cause of its exit."""
        if self._process.returncode is not None:
            return
        self._killed_because = self._killed_because or because
        self._signal(signal.SIGKILL)

    async def end(self, *, patience: float) -> None:
        """Wait for an exit that was asked for; after `patience` seconds SIGTERM, then SIGKILL."""
        for wait, number in ((patience, signal.SIGTERM), (_TERMINATE_AFTER, signal.SIGKILL), (_KILL_AFTER, None)):
            try:
                async with asyncio.timeout(wait):
                    await self._process.wait()
                return
            except TimeoutError:
                if number is not None:
                    log.warning("a runner does not end", pid=self.pid, signal=number.name)
                    self._signal(number)
        log.error("a runner could not be ended", pid=self.pid)

    async def wait(self) -> Exit:
        """Wait for the end and explain it."""
        status = await self._process.wait()
        # What a dead leader left running in its group must not hold memory or our pipes.
        self._signal(signal.SIGKILL)
        await self._stderr
        if self._process.stdin is not None:
            self._process.stdin.close()
        return Exit(status, self._killed_because or explain_status(status), tuple(self._lines))

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def _collect_lines(self) -> None:
        assert self._process.stderr is not None
        async for raw in _split_lines(self._process.stderr):
            line = raw.decode(errors="replace").rstrip()[:_LONGEST_LINE]
            if line:
                self._lines.append(line)
                log.debug("a runner says", pid=self.pid, line=line)


async def _split_lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Give lines; one longer than the buffer comes in pieces instead of ending the reading."""
    while True:
        try:
            line = await reader.readuntil()
        except asyncio.LimitOverrunError as error:
            line = await reader.readexactly(max(error.consumed, 1))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                yield error.partial
            return
        yield line


def explain_status(status: int) -> str:
    """Say how a process ended, by its exit status (negative: the signal)."""
    if status == 0:
        return "the runner ended although nobody asked it to"
    if status > 0:
        return f"the runner exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = "; on Linux that is often the system running out of memory" if -status == signal.SIGKILL else ""
    return f"the runner was killed by {name}{hint}"


async def start_runner(command: tuple[str, ...]) -> RunnerProcess:
    """Start the process; `OSError` when that is impossible."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True, limit=_BUFFER
    )
    return RunnerProcess(process)
