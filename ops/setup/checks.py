"""The stages of `make test`: format, lint, types, imports, the dashboard's own checks, then pytest.

Every stage runs even when an earlier one failed, so that one run shows all there is to repair. pytest comes last: its
closing line ends the output, and its exit code is ours unless only an earlier stage failed.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from report import say, warn
from tree import DASHBOARD, ROOT, VENV, run_for_code

_BIN = VENV / "bin"


@dataclass(frozen=True)
class Stage:
    """One program to run: its name in the output, the command, where, and with which variables besides ours."""

    name: str
    command: Sequence[str | Path]
    cwd: Path = ROOT
    env: Mapping[str, str] = field(default_factory=dict[str, str])


def list_static_stages(node_env: Mapping[str, str]) -> list[Stage]:
    """The stages that start nothing: they read the tree."""
    return [
        Stage("format", [_BIN / "ruff", "format", "--check", "."]),
        Stage("lint", [_BIN / "ruff", "check", "."]),
        Stage("types", [_BIN / "basedpyright"]),
        Stage("imports", [_BIN / "lint-imports", "--no-logo", "--no-cache"]),
        Stage("dashboard", ["npm", "run", "--silent", "verify"], cwd=DASHBOARD / "web", env=node_env),
    ]


def run_checks(node_env: Mapping[str, str], pytest_arguments: Sequence[str]) -> int:
    """Run all stages and return the exit code of `make test`."""
    failed = [stage.name for stage in list_static_stages(node_env) if _run_stage(stage) != 0]
    say("== pytest")
    code = run_for_code([_BIN / "python", "-m", "pytest", *pytest_arguments], env=node_env)
    if failed:
        warn(f"these stages before pytest failed: {', '.join(failed)}")
    return code or int(bool(failed))


def _run_stage(stage: Stage) -> int:
    say(f"== {stage.name}")
    start = time.monotonic()
    code = run_for_code(stage.command, env={**os.environ, **stage.env}, cwd=stage.cwd)
    verdict = "passed" if code == 0 else "FAILED"
    say(f"== {stage.name} {verdict} in {time.monotonic() - start:.1f} s")
    return code
