"""`make test`: every stage runs, pytest comes last, and no failure is lost."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import checks


class Programs:
    """Stands where programs are started: records them in order and answers with a code each."""

    def __init__(self, failing: Mapping[str, int]) -> None:
        self.failing = failing
        self.started: list[str] = []

    def run(self, command: Sequence[str | Path], *, env: Mapping[str, str], cwd: Path = checks.ROOT) -> int:
        words = " ".join(str(word).rpartition("/")[2] for word in command)
        assert cwd.exists()
        assert env is not None
        self.started.append(words)
        return next((code for name, code in self.failing.items() if name in words), 0)


@pytest.mark.parametrize(
    ("failing", "code"),
    [({}, 0), ({"ruff check": 1}, 1), ({"basedpyright": 1, "pytest": 2}, 2), ({"pytest": 5}, 5), ({"npm": 127}, 1)],
)
def test_every_stage_runs_and_no_failure_is_lost(
    failing: dict[str, int], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = Programs(failing)
    monkeypatch.setattr(checks, "run_for_code", programs.run)
    assert checks.run_checks({}, ["-k", "relay"]) == code
    assert programs.started == [
        "ruff format --check .",
        "ruff check .",
        "basedpyright",
        "lint-imports --no-logo --no-cache",
        "npm run --silent verify",
        "python -m pytest -k relay",
    ]
    shown = capsys.readouterr()
    assert shown.out.count("FAILED in") == len([name for name in failing if name != "pytest"])
    assert shown.out.rstrip().endswith("== pytest"), "nothing is printed after pytest's own closing line"
    assert ("failed" in shown.err) == any(name != "pytest" for name in failing)
