"""Reads a rotating log file from its end and follows it. Used by `exo logs`."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_BLOCK = 64 * 1024
_POLL = 0.2


def read_last_lines(file: Path, count: int) -> list[str]:
    """Give the last lines, also those that have moved into rotated files."""
    lines: list[str] = []
    for part in [file, *(file.with_name(f"{file.name}.{number}") for number in range(1, 100))]:
        missing = count - len(lines)
        if missing <= 0 or not part.exists():
            break
        with part.open("rb") as stream:
            lines = [*_tail(stream, missing), *lines]
    return lines


def _tail(stream: BinaryIO, count: int) -> list[str]:
    """Read blocks from the end until they hold enough lines."""
    position = stream.seek(0, os.SEEK_END)
    content = b""
    while position > 0 and content.count(b"\n") <= count:
        start = max(0, position - _BLOCK)
        stream.seek(start)
        content = stream.read(position - start) + content
        position = start
    return content.decode(errors="replace").splitlines()[-count:]


def follow(file: Path, *, pause: Callable[[], None] = lambda: time.sleep(_POLL)) -> Iterator[str]:
    """Give lines as they are written from now on, over rotations too; ends when `pause` raises."""
    stream, rest = _open_at_end(file), b""
    try:
        while True:
            block = stream.read(_BLOCK) if stream else b""
            if block:
                *lines, rest = (rest + block).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
            elif _has_moved(stream, file):
                if stream:
                    stream.close()
                stream, rest = file.open("rb"), b""
            else:
                pause()
    finally:
        if stream:
            stream.close()


def _open_at_end(file: Path) -> BinaryIO | None:
    try:
        stream = file.open("rb")
    except FileNotFoundError:
        return None
    stream.seek(0, os.SEEK_END)
    return stream


def _has_moved(stream: BinaryIO | None, file: Path) -> bool:
    """Whether the name belongs to another file now; the old one is read to its end before this is asked."""
    try:
        named = file.stat()
    except FileNotFoundError:
        return False
    if stream is None:
        return True
    return os.fstat(stream.fileno()).st_ino != named.st_ino
