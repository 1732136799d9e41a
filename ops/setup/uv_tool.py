"""Where uv comes from: PATH, an earlier fetch, or pip.

pip may be missing too (Debian ships it apart), or forbidden to touch the system's Python (PEP 668); installing into a
target folder is allowed in both worlds and leaves the system alone.
"""

import re
import shutil
import sys
from pathlib import Path

from report import SetupError, say
from system_packages import install
from tree import BUILD, REQUIREMENTS, read_output, run, succeeds

# `--build-constraints` together with hashes and dependency groups.
_OLDEST_USABLE = (0, 8)
_FETCHED = BUILD / "uv" / "bin" / "uv"

# uv must neither download a Python nor follow a virtual environment that happens to be active.
UV_ENVIRONMENT = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "VIRTUAL_ENV": ""}


def parse_version(text: str) -> tuple[int, int]:
    """The first two numbers of what `uv --version` prints; (0, 0) when it prints none."""
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _is_usable(uv: str | Path) -> bool:
    return parse_version(read_output([uv, "--version"])) >= _OLDEST_USABLE


def find_uv() -> Path:
    """A usable uv, fetched when there is none; raises SetupError that names the remedy."""
    on_path = shutil.which("uv")
    if on_path and _is_usable(on_path):
        return Path(on_path)
    if not (_FETCHED.exists() and _is_usable(_FETCHED)):
        _fetch(_find_pip())
    return _FETCHED


def _find_pip() -> list[str]:
    pip = [sys.executable, "-m", "pip"]
    if succeeds([*pip, "--version"]) or (install("python3-pip") and succeeds([*pip, "--version"])):
        return pip
    message = "neither uv nor pip was found; install one of them (Debian: sudo apt-get install -y python3-pip)"
    raise SetupError(message)


def _fetch(pip: list[str]) -> None:
    say("-- fetching uv by pip")
    lock = REQUIREMENTS / "uv.txt"
    command = [*pip, "install", "--quiet", "--require-hashes", "--no-deps", "--upgrade", "--target", BUILD / "uv"]
    # A user's PIP_REQUIRE_VIRTUALENV protects the system's Python, which a target folder does not touch.
    run([*command, "--requirement", lock], env={"PIP_REQUIRE_VIRTUALENV": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
