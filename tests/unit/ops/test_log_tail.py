"""The end of a rotating log file, and following it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from exo.ops.log_tail import follow, read_last_lines


class EnoughError(Exception):
    pass


def play(steps: list[Callable[[], object]]) -> Callable[[], None]:
    """A pause that does one step each time, and ends the following when there is none left."""
    waiting = iter(steps)

    def pause() -> None:
        step = next(waiting, None)
        if step is None:
            raise EnoughError
        step()

    return pause


def collect(file: Path, steps: list[Callable[[], object]]) -> list[str]:
    lines: list[str] = []
    with pytest.raises(EnoughError):
        lines.extend(follow(file, pause=play(steps)))
    return lines


def append(file: Path, text: str) -> Callable[[], object]:
    def write() -> None:
        with file.open("a") as stream:
            stream.write(text)

    return write


@pytest.mark.parametrize("count", [0, 1, 3, 5000, 20000])
def test_the_last_lines_of_a_long_file(tmp_path: Path, count: int) -> None:
    file = tmp_path / "exo.log"
    lines = [f"line {number} with ä" for number in range(10_000)]
    file.write_text("\n".join(lines) + "\n")
    assert read_last_lines(file, count) == lines[len(lines) - min(count, len(lines)) :]


def test_lines_that_moved_into_older_files_count(tmp_path: Path) -> None:
    (tmp_path / "exo.log.2").write_text("a\nb\n")
    (tmp_path / "exo.log.1").write_text("c\n")
    (tmp_path / "exo.log").write_text("d\ne\n")
    assert read_last_lines(tmp_path / "exo.log", 4) == ["b", "c", "d", "e"]


def test_following_gives_whole_lines_from_now_on(tmp_path: Path) -> None:
    file = tmp_path / "exo.log"
    file.write_text("old\n")
    assert collect(file, [append(file, "ne"), append(file, "w\nmore\nha")]) == ["new", "more"]


def test_following_survives_a_rotation(tmp_path: Path) -> None:
    file = tmp_path / "exo.log"
    file.write_text("old\n")

    def rotate() -> None:
        append(file, "last of it\n")()
        file.rename(tmp_path / "exo.log.1")
        file.write_text("first of the next\n")

    assert collect(file, [rotate, append(file, "second\n")]) == ["last of it", "first of the next", "second"]


def test_following_waits_for_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    file = tmp_path / "exo.log"
    assert collect(file, [lambda: None, append(file, "first\n")]) == ["first"]
