"""Writes the locks under requirements/: every version and hash, no address.

One universal resolution serves Linux and macOS, Python 3.11 and newer. `dev` is resolved first and constrains `run`,
so that adding the tests' packages to an environment never moves one that is already there.
"""

import os
from collections.abc import Sequence

from report import timed
from tree import REQUIREMENTS, ROOT, run
from uv_tool import UV_ENVIRONMENT, find_uv

_HEADER = "# Written by `make lock` from pyproject.toml; edit that, not this.\n"
_PROJECT = ["pyproject.toml", "--group", "backend"]
_SOURCES = {
    "dev": [*_PROJECT, "--group", "dev", "--group", "build"],
    "run": [*_PROJECT, "--constraints", "requirements/dev.txt"],
    "build": ["--group", "build", "--constraints", "requirements/dev.txt"],
    "node": ["--group", "node", "--constraints", "requirements/dev.txt"],
    "uv": ["--group", "uv"],
}


def write_locks(arguments: Sequence[str]) -> None:
    """Resolve each lock again, keeping versions that still fit; `--upgrade` among the arguments takes newer ones."""
    uv = find_uv()
    for name, sources in _SOURCES.items():
        with timed(f"requirements/{name}.txt"):
            output = REQUIREMENTS / f"{name}.txt"
            options = ["--quiet", "--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate"]
            addressless = ["--no-header", "--no-emit-index-url", "--no-emit-find-links"]
            command = [uv, "pip", "compile", *options, *addressless, *arguments, *sources, "--output-file", output]
            run(command, env={**UV_ENVIRONMENT, "NO_COLOR": os.environ.get("NO_COLOR", "1")}, cwd=ROOT)
            output.write_text(_HEADER + output.read_text())
