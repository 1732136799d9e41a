"""macmon, watched: the program that reads GPU, power and temperature of Apple silicon without root.

Each start is a preflight: a sane line must come within seconds, or psutil alone measures and the
reason becomes a finding. Later silence ends it and starts it anew. It dies with the node process.
"""

import asyncio
import shutil
import sys
from collections import deque
from pathlib import Path

import structlog

from exo.broker import shim
from exo.services.clock import Clock
from exo.services.telemetry.board import FindingBoard
from exo.services.telemetry.macmon_findings import MacmonFailure, explain
from exo.services.telemetry.macmon_sample import MacmonSample, parse_sample

log = structlog.get_logger(__name__)

INTERVAL = 1.0
PREFLIGHT = 5.0
"""Seconds within which the first line must come."""
SILENT_INTERVALS = 10
LEAST_SILENCE = 30.0
"""Seconds; a Mac that wakes up needs some."""
RETRY = 300.0
"""Seconds until macmon is tried again that did not pass: somebody may install it meanwhile."""
RESTART = 1.0
_KEPT_LINES = 8


class Macmon:
    """Keeps the newest sample for as long as `run` runs."""

    def __init__(
        self,
        *,
        clock: Clock,
        board: FindingBoard,
        binary: str = "",
        interval: float = INTERVAL,
        preflight: float = PREFLIGHT,
        silence: float = 0,
    ) -> None:
        """`silence` in seconds, 0 for ten intervals or half a minute, whichever is longer."""
        self._clock = clock
        self._board = board
        self._binary = binary or "macmon"
        self._interval = interval
        self._preflight = preflight
        self._silence = silence or max(SILENT_INTERVALS * interval, LEAST_SILENCE)
        self._newest: tuple[MacmonSample, float] | None = None
        self.starts = 0
        self.settled = asyncio.Event()
        """Set once it is known whether macmon measures."""
        self.pid: int | None = None
        """Of macmon itself while it runs."""

    def newest(self) -> MacmonSample | None:
        """Give the newest sample, None when there is none of the last ten intervals."""
        if self._newest is None:
            return None
        sample, taken = self._newest
        return sample if self._clock.monotonic() - taken <= SILENT_INTERVALS * self._interval else None

    async def run(self) -> None:
        """Watch over macmon until cancelled."""
        while True:
            try:
                await self._follow()
            except MacmonFailure as failure:
                self._board.note("macmon", explain(failure))
                self.settled.set()
                log.warning("macmon does not measure", reason=failure.reason, detail=failure.detail)
                await self._clock.sleep(RESTART if failure.reason == "silent" else RETRY)

    async def _follow(self) -> None:
        """Start macmon and take its samples; ends with `MacmonFailure` only."""
        program = shutil.which(self._binary)
        if program is None:
            raise MacmonFailure("missing", self._binary)
        process = await self._spawn(Path(program))
        said: deque[str] = deque(maxlen=_KEPT_LINES)
        try:
            assert process.stdout is not None
            line = await process.stdout.readline()
            self.pid = int(line) if line.strip().isdigit() else None
            await self._take(process, said, patience=self._preflight, reason="no_sample")
            self._board.note("macmon")
            self.settled.set()
            while True:
                await self._take(process, said, patience=self._silence, reason="silent")
        finally:
            self.pid = None
            await _end(process)

    async def _spawn(self, program: Path) -> asyncio.subprocess.Process:
        self.starts += 1
        command = [str(program), "pipe", "-i", str(round(self._interval * 1000))]
        # The shim ends macmon when this process is gone. What macmon prints comes through its stderr.
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", shim.__file__, *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def _take(
        self, process: asyncio.subprocess.Process, said: "deque[str]", *, patience: float, reason: str
    ) -> None:
        """Wait for one sample; lines that are none are kept for the finding."""
        assert process.stderr is not None
        try:
            async with asyncio.timeout(patience):
                while line := await process.stderr.readline():
                    sample = parse_sample(line)
                    if sample is not None:
                        self._newest = sample, self._clock.monotonic()
                        return
                    said.append(line.decode(errors="replace").strip()[:200])
        except TimeoutError as error:
            raise MacmonFailure(reason, " | ".join(said) or f"nothing within {patience:g} s") from error
        except ValueError as error:
            raise MacmonFailure("no_sample", "a line without an end") from error
        code = await process.wait()
        raise MacmonFailure("crashed", " | ".join(said), code=code)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End macmon and its shim, also when this task is being cancelled."""
    if process.stdin is None or process.returncode is not None:
        return
    process.stdin.write(b"k")
    process.stdin.close()
    await process.wait()
