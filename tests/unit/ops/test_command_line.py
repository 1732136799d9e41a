"""The command `exo` itself: which command is meant, what an error looks like, what a help text holds."""

import io
import re
import subprocess
import sys

import pytest
from typer.main import get_command

from exo.ops import cli
from exo.ops.cli.app import app
from exo.ops.errors import CommandError, NoNodeError
from exo.ops.layers import split_given


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ([], ["up"]),
        (["--port", "80"], ["up", "--port", "80"]),
        (["--api-port", "80"], ["up", "--port", "80"]),
        (["up", "--no-batch"], ["up", "--max-concurrent-requests=1"]),
        (["-v"], ["up", "-v"]),
        (["--help"], ["--help"]),
        (["ps"], ["ps"]),
        (["run", "m", "--no-batch"], ["run", "m", "--no-batch"]),
    ],
)
def test_exo_alone_is_exo_up(typed: list[str], meant: list[str]) -> None:
    assert cli.route(typed) == meant


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["upp"], 2, "Did you mean 'up'?"),
        (["--prot", "1"], 2, "--port"),
        (["up", "--port", "many"], 2, "--port"),
        (["up", "-q", "-v"], 2, "exclude each other"),
        (["up", "--model", "m", "--no-worker"], 2, "--no-worker"),
        (["up", "--port", "70000"], 2, "--port = 70000"),
        (["--force-master"], 2, "--force-master: "),
        (["ps"], 3, "no node runs on"),
        (["down"], 3, "no node runs on"),
        (["nats", "info"], 3, "no message broker runs on"),
        (["ps", "--url", "http://127.0.0.1:1"], 3, "no node answers at http://127.0.0.1:1"),
        (["logs"], 1, "does not exist"),
        (["nats", "sub", "two words"], 2, "'two words' is no subject"),
        (["nats", "sub", "exo..>"], 2, "'exo..>' is no subject"),
        (["nats", "sub", ">.exo"], 2, "'>.exo' is no subject"),
        (["models", "import", "nothing.gguf"], 2, "nothing.gguf is no file"),
    ],
)
def test_an_error_is_one_line_with_a_remedy_and_a_code(
    arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert text in shown.err
    assert "Traceback" not in shown.err
    assert len(shown.err.splitlines()) <= 2


def test_a_bad_setting_stops_up(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXO_KEEP_ALIVE", "often")
    assert cli.run(["up"]) == 2
    assert "environment variable EXO_KEEP_ALIVE = 'often'" in capsys.readouterr().err


def test_run_reads_what_is_piped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from exo.ops.cli.talk import _join

    assert _join("Sum up:", "a\nb\n") == "Sum up:\n\na\nb"
    assert _join(None, " a ") == "a"
    monkeypatch.setattr("sys.stdin", io.StringIO(" \n"))
    assert cli.run(["run", "m"]) == 2
    assert "nothing to ask" in capsys.readouterr().err


def test_arguments_that_are_no_text_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    # As Python reads the bytes of an argument that is not UTF-8.
    assert cli.run(["run", "m", "half \udcff", "--url", "http://127.0.0.1:1"]) == 2
    assert "not UTF-8" in capsys.readouterr().err


def test_piped_bytes_that_are_no_text_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    assert cli.run(["run", "m"]) == 2
    assert "not UTF-8" in capsys.readouterr().err


def test_a_script_of_a_conversation_ends_at_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("first\nsecond\n"))
    assert cli.run(["chat", "m", "--url", "http://127.0.0.1:1"]) == 3
    assert capsys.readouterr().err.count("no node answers") == 1


def test_an_error_shows_its_code_its_remedy_and_its_evidence() -> None:
    error = CommandError("it broke", code="engine_failed", remedy="try again", evidence=["line 1"])
    assert str(error) == "it broke (engine_failed); try again"
    assert error.evidence == ("line 1",)
    assert (CommandError("x").exit_code, NoNodeError("x").exit_code) == (1, 3)


def test_the_version_needs_no_library() -> None:
    code = (
        "import sys; from exo.ops.cli import run; status = run(['--version']);"
        "heavy = {'typer', 'httpx2', 'structlog', 'nats', 'rich', 'msgspec', 'asyncio'} & set(sys.modules);"
        "sys.exit(status or (f'loaded {heavy}' if heavy else 0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("exo ")


def test_help_needs_no_slow_library() -> None:
    code = (
        "import sys; import exo.ops.cli.app;"
        "heavy = {'httpx2', 'structlog', 'nats', 'litestar', 'mlx', 'exo.broker', 'exo.services'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def list_commands() -> list[list[str]]:
    root = get_command(app)
    found: list[list[str]] = []
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        nested = getattr(command, "commands", None)
        found += [[name, inner] for inner in nested] if nested else [[name]]
    return found


@pytest.mark.parametrize("command", [[], *list_commands()], ids=" ".join)
def test_every_help_text_has_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*command, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"Example: exo {' '.join(command)}" in " ".join(text.split())
    assert f"Usage: {' '.join(['exo', *command])}" in text


@pytest.mark.parametrize(
    ("typed", "help_of"),
    [(["drain"], "exo drain"), (["place", "m", "--odd"], "exo place"), (["models", "odd"], "exo models")],
)
def test_who_calls_a_command_wrongly_is_shown_its_help(
    typed: list[str], help_of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(typed) == 2
    assert f"`{help_of} --help`" in capsys.readouterr().err


@pytest.mark.parametrize("group", [[], ["models"], ["nats"], ["cluster"], ["keys"], ["service"]])
def test_no_list_of_commands_cuts_what_they_do(
    group: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert cli.run([*group, "--help"]) == 0
    commands = capsys.readouterr().out.partition("Commands:")[2]
    assert commands
    assert re.search(r"\w\.\.\.", commands) is None


def test_a_flag_that_is_given_once_is_one_entry() -> None:
    assert split_given(["bad host", "a:1, b:2", ""]) == ["bad host", "a:1", "b:2"]
