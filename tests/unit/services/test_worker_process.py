"""A process behind a pipe: frames, endings, and what is said of them."""

import asyncio
import signal
import sys
from pathlib import Path

import psutil
import pytest

from exo.services.worker.process import Exit, FrameError, RunnerProcess, explain_status, start_runner
from exo.streams.codec import CodecError, encode
from exo.streams.pipe import MAX_FRAME, Beat, FromRunner, Stop

BEAT = Beat(steps=1, active=0, queued=0, generated_tokens=0, prompt_tokens=0)
HEAD = "import sys, time\nout = sys.stdout.buffer\n"


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


async def start(script: str) -> RunnerProcess:
    return await start_runner((sys.executable, "-c", HEAD + script))


async def read_all(process: RunnerProcess) -> list[FromRunner]:
    return [frame async for frame in process.frames()]


async def finish(script: str) -> tuple[list[FromRunner], Exit]:
    process = await start(script)
    frames = await read_all(process)
    return frames, await process.wait()


@pytest.mark.parametrize(
    ("status", "words"),
    [(0, "nobody asked"), (3, "status 3"), (-9, "SIGKILL"), (-11, "SIGSEGV"), (-250, "signal 250")],
)
def test_an_ending_is_explained(status: int, words: str) -> None:
    assert words in explain_status(status)


def test_only_sigkill_hints_at_memory() -> None:
    assert "memory" in explain_status(-9)
    assert "memory" not in explain_status(-15)


async def test_frames_are_read_until_the_output_ends() -> None:
    data = framed(encode(BEAT)) * 3
    frames, end = await finish(f"out.write({data!r})")
    assert frames == [BEAT] * 3
    assert end.status == 0


async def test_frames_may_come_in_pieces() -> None:
    data = framed(encode(BEAT))
    script = f"for byte in {data!r}:\n out.write(bytes([byte])); out.flush()\n"
    assert (await finish(script))[0] == [BEAT]


async def test_half_a_frame_at_the_end_is_no_frame() -> None:
    data = framed(encode(BEAT)) + framed(encode(BEAT))[:10]
    assert (await finish(f"out.write({data!r})"))[0] == [BEAT]


@pytest.mark.parametrize(
    ("data", "error"),
    [(framed(b"nonsense"), CodecError), ((MAX_FRAME + 1).to_bytes(4, "big"), FrameError)],
)
async def test_what_is_no_frame_is_an_error(data: bytes, error: type[Exception]) -> None:
    process = await start(f"out.write({data!r}); out.flush(); time.sleep(60)")
    with pytest.raises(error):
        await read_all(process)
    process.kill("because of the test")
    end = await process.wait()
    assert (end.status, end.cause) == (-signal.SIGKILL, "because of the test")


async def test_frames_are_sent() -> None:
    process = await start("data = sys.stdin.buffer.read(4)\nout.write(data + sys.stdin.buffer.read(data[3]))")
    await process.send(Stop(grace=1))
    with pytest.raises(CodecError, match="stop"):
        await read_all(process)
    await process.wait()


async def test_sending_to_a_dead_process_is_no_error() -> None:
    process = await start("")
    await process.wait()
    await process.send(Stop())


async def test_evidence_is_the_end_of_standard_error() -> None:
    script = "for n in range(50): print('line', n, file=sys.stderr)\nsys.stderr.write('x' * 3_000_000)\nsys.exit(1)"
    _, end = await finish(script)
    assert len(end.evidence) == 20
    assert "line 49" in end.evidence or end.evidence[-1].startswith("x")
    assert max(len(line) for line in end.evidence) <= 500


async def test_a_stubborn_process_is_terminated_then_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exo.services.worker.process._TERMINATE_AFTER", 0.2)
    script = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nout.write(b'\\0'); out.flush(); time.sleep(60)"
    )
    process = await start(script)
    assert process._process.stdout is not None
    await process._process.stdout.readexactly(1)
    await process.end(patience=0.05)
    assert (await process.wait()).status == -signal.SIGKILL


async def test_the_whole_group_ends_with_its_leader(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = (
        "import subprocess\nchild = subprocess.Popen(['sleep', '60'], stdin=subprocess.DEVNULL)\n"
        f"open({str(file)!r}, 'w').write(str(child.pid))"
    )
    process = await start(script)
    # The child holds the pipe, so the end of the leader is what must be noticed.
    await process.end(patience=10)
    end = await process.wait()
    assert end.status == 0
    child = int(file.read_text())
    await asyncio.to_thread(_wait_gone, child)


def _wait_gone(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            process.wait(10)
    except psutil.NoSuchProcess:
        return


async def test_a_program_that_does_not_exist_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nothing"):
        await start_runner((str(tmp_path / "nothing"),))
