"""Logging: what stands on stderr and in the file, and what never does."""

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from exo.ops.color import wants_color
from exo.ops.logging import set_up_logging
from exo.ops.redaction import HIDDEN, is_private, redact_value


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def log_some(verbosity: int, file: Path | None = None, stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    set_up_logging(verbosity=verbosity, log_file=file, stream=stream)
    log = structlog.get_logger("exo.test")
    log.debug("a detail")
    log.info("a node joined", node="n1")
    log.warning("a thing is odd")
    logging.getLogger("nats").info("chatter")
    logging.getLogger("nats").warning("library says %s", "hm")
    return stream.getvalue()


def test_stderr_shows_the_time_only() -> None:
    lines = log_some(0).splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d \[info +\] a node joined +node=n1", lines[0])
    assert [line.split("] ")[1].split("  ")[0].strip() for line in lines] == [
        "a node joined",
        "a thing is odd",
        "library says hm",
    ]


def test_verbose_shows_dates_and_details() -> None:
    lines = log_some(1).splitlines()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d \[debug +\] a detail", lines[0])
    assert "[exo.test]" in lines[0]
    assert "chatter" not in "".join(lines)


def test_very_verbose_lets_the_libraries_speak() -> None:
    assert "chatter" in log_some(2)


def test_quiet_shows_warnings_only() -> None:
    assert [line.split()[2] for line in log_some(-1).splitlines()] == ["]", "]"]
    assert "joined" not in log_some(-1)


def test_the_file_has_dates_always_and_details_with_verbose(tmp_path: Path) -> None:
    file = tmp_path / "exo.log"
    log_some(-1, file)
    first = file.read_text().splitlines()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d \[info +\] a node joined", first[0])
    log_some(1, file)
    assert "a detail" in file.read_text()
    assert (tmp_path / "exo.log.1").read_text().splitlines() == first


def test_color_is_for_terminals() -> None:
    assert wants_color(Terminal(), {"TERM": "xterm"})
    assert not wants_color(io.StringIO(), {})
    assert not wants_color(Terminal(), {"NO_COLOR": "1"})
    assert not wants_color(Terminal(), {"TERM": "dumb"})
    assert "\x1b[" not in log_some(0)


def test_a_log_line_takes_the_place_of_a_progress_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    lines = log_some(0, stream=Terminal()).split("\n")
    assert lines.pop() == ""
    assert [line for line in lines if not line.startswith("\r\x1b[K")] == []


def test_text_of_users_and_secrets_are_redacted_at_any_depth(tmp_path: Path) -> None:
    stream = io.StringIO()
    set_up_logging(verbosity=1, log_file=tmp_path / "exo.log", stream=stream)
    request = {"messages": [{"content": "my diary"}], "nested": [{"api_key": "k-123"}], "max_tokens": 12}
    structlog.get_logger("exo.test").info("an event", prompt="my diary", Authorization="Bearer k-123", request=request)
    for text in (stream.getvalue(), (tmp_path / "exo.log").read_text()):
        assert "diary" not in text
        assert "k-123" not in text
        assert "an event" in text
        assert "'max_tokens': 12" in text


def test_a_traceback_shows_no_locals() -> None:
    stream = io.StringIO()
    set_up_logging(verbosity=0, log_file=None, stream=stream)
    words = "my-" + "diary"
    try:
        int(words[:0])
    except ValueError:
        structlog.get_logger("exo.test").exception("it failed")
    assert "ValueError: invalid literal" in stream.getvalue()
    assert words not in stream.getvalue()


@pytest.mark.parametrize("key", ["token", "hf_token", "Api-Key", "x_api_key", "broker_password", "Set-Cookie", "text"])
def test_private_keys(key: str) -> None:
    assert is_private(key)
    assert redact_value(key, "v") == HIDDEN


@pytest.mark.parametrize("key", ["tokens", "prompt_tokens", "generated_tokens_per_second", "model", "context_length"])
def test_counts_are_not_private(key: str) -> None:
    assert redact_value(key, 5) == 5
