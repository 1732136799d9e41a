"""macmon under watch, played by a small program that behaves as macmon did on machines of users."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from exo.services.clock import FakeClock, SystemClock
from exo.services.telemetry.board import FindingBoard
from exo.services.telemetry.macmon import INTERVAL, LEAST_SILENCE, RETRY, Macmon
from exo.services.telemetry.macmon_findings import PINNED_REVISION
from support.recordings import MACMON_LINE
from support.services import eventually

Write = Callable[[str], str]


@pytest.fixture
def write_macmon(tmp_path: Path) -> Write:
    """Write a program that does what `body` says; it has `line`, `count` (of its starts) and `show`."""

    def write(body: str) -> str:
        program, starts = tmp_path / "macmon", tmp_path / "starts"
        program.write_text(
            f"#!{sys.executable}\n"
            "import os, sys, time\n"
            f"line = {MACMON_LINE.decode()!r}\n"
            f"with open({str(starts)!r}, 'a') as file: file.write('x')\n"
            f"count = os.path.getsize({str(starts)!r})\n"
            "assert sys.argv[1:2] == ['pipe'] and sys.argv[2] == '-i', sys.argv\n"
            "def show(text): sys.stdout.write(text); sys.stdout.flush()\n" + body
        )
        program.chmod(0o755)
        return str(program)

    return write


@asynccontextmanager
async def watching(macmon: Macmon) -> AsyncGenerator[None]:
    task = asyncio.create_task(macmon.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object], what: str) -> None:
    async def holds() -> bool:
        return bool(condition())

    await eventually(holds, what=what)


async def find(program: str, *, preflight: float = 10) -> str:
    """Run macmon until it is given up; gives code, message and remedy in one text."""
    board = FindingBoard()
    async with watching(Macmon(clock=FakeClock(), board=board, binary=program, preflight=preflight)):
        await until(board.current, "a finding")
    (finding,) = board.current()
    return f"{finding.code}: {finding.message} -> {finding.remedy}"


async def test_samples_are_taken_while_macmon_gives_them(write_macmon: Write) -> None:
    board = FindingBoard()
    macmon = Macmon(clock=SystemClock(), board=board, binary=write_macmon("while True: show(line); time.sleep(0.01)"))
    async with watching(macmon):
        await until(macmon.newest, "a sample")
        assert board.current() == ()
        pid = macmon.pid
        assert pid is not None
        assert psutil.pid_exists(pid)
    await until(lambda: not psutil.pid_exists(pid), "the end of macmon")


async def test_a_sample_grows_old(write_macmon: Write) -> None:
    clock = FakeClock()
    macmon = Macmon(clock=clock, board=FindingBoard(), binary=write_macmon("show(line); time.sleep(60)"))
    async with watching(macmon):
        await until(macmon.newest, "a sample")
        await clock.advance(10 * INTERVAL)
        assert macmon.newest() is not None
        await clock.advance(1)
        assert macmon.newest() is None


async def test_macmon_that_falls_silent_is_started_anew(write_macmon: Write) -> None:
    body = "show(line)\nif count == 1: time.sleep(60)\nwhile True: time.sleep(0.01); show(line)"
    board, clock = FindingBoard(), FakeClock()
    macmon = Macmon(clock=clock, board=board, binary=write_macmon(body), silence=0.2)
    async with watching(macmon):
        await until(lambda: macmon.pid, "the first start")
        first = macmon.pid
        await until(board.current, "the finding")
        assert board.current()[0].code == "macmon_silent"
        assert not psutil.pid_exists(first or 0)
        await clock.advance(1)
        await until(lambda: macmon.starts == 2 and not board.current(), "the second start")
        assert macmon.newest() is not None


def test_silence_lasts_ten_intervals_and_half_a_minute_at_least() -> None:
    board, clock = FindingBoard(), FakeClock()
    assert Macmon(clock=clock, board=board)._silence == LEAST_SILENCE
    assert Macmon(clock=clock, board=board, interval=5)._silence == 50


async def test_macmon_that_is_missing_is_a_finding_with_the_pinned_revision(tmp_path: Path) -> None:
    text = await find(str(tmp_path / "macmon"))
    assert text.startswith("macmon_missing")
    assert PINNED_REVISION in text


async def test_the_crash_of_the_packaged_macmon_is_told_with_its_last_words(write_macmon: Write) -> None:
    body = "sys.stderr.write(\"thread 'main' panicked at src/sources.rs:394:41\\n\"); sys.stderr.flush(); os.abort()"
    text = await find(write_macmon(body))
    assert text.startswith("macmon_crashed")
    assert "134" in text
    assert "panicked" in text
    assert "0.6.1" in text
    assert PINNED_REVISION in text


async def test_macmon_that_says_nothing_sane_fails_its_preflight(write_macmon: Write) -> None:
    text = await find(write_macmon("show('[]\\n'); time.sleep(60)"), preflight=0.5)
    assert text.startswith("macmon_unreadable")
    assert "[]" in text


async def test_macmon_that_did_not_pass_is_tried_again_later(write_macmon: Write) -> None:
    clock, board = FakeClock(), FindingBoard()
    macmon = Macmon(
        clock=clock,
        board=board,
        binary=write_macmon("if count == 1: sys.exit(3)\nwhile True: show(line); time.sleep(0.01)"),
    )
    async with watching(macmon):
        await until(board.current, "the finding")
        await clock.advance(RETRY)
        await until(lambda: macmon.newest() is not None and not board.current(), "samples after all")


async def test_macmon_dies_with_the_node(write_macmon: Write, tmp_path: Path) -> None:
    program = write_macmon("import signal; show(line); signal.pause()")
    script = (
        "import asyncio, sys\n"
        "from exo.services.clock import SystemClock\n"
        "from exo.services.telemetry.board import FindingBoard\n"
        "from exo.services.telemetry.macmon import Macmon\n"
        "async def main():\n"
        f"    macmon = Macmon(clock=SystemClock(), board=FindingBoard(), binary={program!r})\n"
        "    task = asyncio.create_task(macmon.run())\n"
        "    while macmon.newest() is None: await asyncio.sleep(0.01)\n"
        "    print(macmon.pid, flush=True)\n"
        "    await task\n"
        "asyncio.run(main())\n"
    )
    node = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert node.stdout is not None
    pid = int(await node.stdout.readline())
    assert psutil.pid_exists(pid)
    node.kill()
    await node.wait()
    await until(lambda: not _runs(pid), "the end of macmon")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
