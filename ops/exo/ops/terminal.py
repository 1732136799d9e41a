"""How commands write: tables, sizes, colour and progress.

On a terminal tables are aligned and coloured and progress is one line that moves; in a pipe tables
are tab-separated with a header and progress is plain lines on stderr, so that scripts can read
them. `NO_COLOR` is respected.
"""

import sys
from collections.abc import Sequence
from typing import Self, TextIO

from exo.ops.color import wants_color

_UNITS = ("B", "kB", "MB", "GB", "TB")
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}


def paint(text: str, style: str, *, stream: TextIO | None = None) -> str:
    """Style a text for a stream (stdout by default) if it is a terminal."""
    if not style or not wants_color(stream or sys.stdout):
        return text
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m"


def say(text: str = "") -> None:
    """Print a result."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Print something for the person, that is no result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows; aligned on a terminal, tab-separated with lower-case column names in a pipe."""
    if sys.stdout.isatty():
        for line in align(header, rows):
            say(line)
        return
    say("\t".join(name.lower().replace(" ", "_") for name in header))
    for row in rows:
        say("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row))


def align(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Give a table as lines with columns as wide as their widest cell."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [header, *rows]]
    first, *rest = [line.rstrip() for line in lines]
    return [paint(first, "bold"), *rest]


def show_bytes(count: float) -> str:
    """Give a size the way people say it, in powers of 1000."""
    for unit in _UNITS[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in {"B", "kB"} else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_UNITS[-1]}"


def show_count(count: int, noun: str) -> str:
    """Give a number of things, one of them without an s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def show_duration(seconds: float) -> str:
    """Give a span in its two largest units."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


class ProgressLine:
    """Shows how far something is, on stderr. A context manager; on a terminal it leaves no trace."""

    _WIDTH = 24

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._moves = self._stream.isatty()
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, what: str, done: int = 0, total: int = 0, *, detail: str = "") -> None:
        """Say what is going on; in a pipe only when `what` changes."""
        if not self._moves:
            if what != self._shown:
                self._stream.write(what + "\n")
                self._stream.flush()
        else:
            self._stream.write(f"\r\x1b[K{self._draw(what, done, total, detail)}")
            self._stream.flush()
        self._shown = what

    def clear(self) -> None:
        """Take the line away."""
        if self._moves and self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._shown = ""

    def _draw(self, what: str, done: int, total: int, detail: str) -> str:
        if total <= 0:
            return f"{what} {detail}".rstrip()
        share = min(1.0, done / total)
        bar = ("#" * round(share * self._WIDTH)).ljust(self._WIDTH, ".")
        return f"{what} [{bar}] {share:4.0%} {detail}".rstrip()
