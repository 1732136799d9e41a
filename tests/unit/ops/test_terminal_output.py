"""How commands write, to a terminal and to a pipe."""

import io
from contextlib import redirect_stdout

import pytest

from exo.ops.terminal import ProgressLine, align, paint, print_table, show_bytes, show_duration


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Screen()


ROWS = [["a", "ready", "1"], ["longer name", "failed:\tx\ny", "12"]]


def test_a_pipe_gets_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("MODEL", "STATUS", "TOKENS S"), ROWS)
    assert capsys.readouterr().out == "model\tstatus\ttokens_s\na\tready\t1\nlonger name\tfailed: x y\t12\n"


def test_a_terminal_gets_columns(screen: Screen) -> None:
    with redirect_stdout(screen):
        print_table(("MODEL", "N"), [["a", "1"], ["longer", "2"]])
    assert screen.getvalue().splitlines() == ["\x1b[1mMODEL   N\x1b[0m", "a       1", "longer  2"]


def test_a_table_without_rows_is_its_header() -> None:
    assert align(("MODEL", "N"), []) == ["MODEL  N"]


def test_no_color_is_respected(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paint("x", "red", stream=screen) == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint("x", "red", stream=screen) == "x"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (98_000_000, "98.0 MB"), (25e9, "25.0 GB"), (3e15, "3000.0 TB")]
)
def test_sizes(count: float, text: str) -> None:
    assert show_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s"), (59.9, "59s"), (61, "1m01s"), (3_660, "1h01m"), (90_000, "1d01h")]
)
def test_spans(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


def test_progress_in_a_pipe_is_a_line_per_stage() -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as line:
        line.show("loading m", 1, 4)
        line.show("loading m", 2, 4)
        line.show("warming up m")
    assert stream.getvalue() == "loading m\nwarming up m\n"


def test_progress_on_a_terminal_moves_and_leaves_nothing() -> None:
    stream = Screen()
    with ProgressLine(stream) as line:
        line.show("loading m", 1, 4, detail="layer 1 of 4")
    assert f"\r\x1b[Kloading m [{'#' * 6}{'.' * 18}]  25% layer 1 of 4" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")
