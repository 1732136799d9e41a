"""Where things lie in a clone, and the one way the bootstrap starts a program.

`.venv` holds what `make up` and `make test` need; `.build` holds the tools that were fetched to get there.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from report import SetupError

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
BUILD = ROOT / ".build"
REQUIREMENTS = ROOT / "requirements"
DASHBOARD = ROOT / "dashboard"


def run(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> None:
    """Run a program with its output shown; raises SetupError that names the command when it fails."""
    code = run_for_code(command, env=env, cwd=cwd)
    if code != 0:
        raise SetupError(_describe_failure(command, code))


def run_for_code(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> int:
    """Run a program with its output shown and return its exit code."""
    return subprocess.run(command, env={**os.environ, **(env or {})}, cwd=cwd, check=False).returncode


def run_quietly(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> None:
    """Run a talkative program; its output is shown only when it fails, before the SetupError."""
    variables = {**os.environ, **(env or {})}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout + done.stderr, file=sys.stderr, flush=True)
        raise SetupError(_describe_failure(command, done.returncode))


def succeeds(command: Sequence[str | Path]) -> bool:
    """Whether a program can be started and ends well; its output is not shown."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def read_output(command: Sequence[str | Path]) -> str:
    """What a program prints, stripped; empty when it cannot be started or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _describe_failure(command: Sequence[str | Path], code: int) -> str:
    words = " ".join(str(word) for word in command)
    return f"`{words}` ended with exit code {code}"
