"""The virtual environment: made by uv from the hashed locks, with exo itself installed editable.

`run` is what `make up` needs, `dev` adds the tests' and the linters' packages to it, at the same versions.
"""

import platform
import re
import sys
from pathlib import Path
from typing import Literal

import stamps
from report import SetupError, timed
from tree import REQUIREMENTS, ROOT, VENV, VENV_PYTHON, run, succeeds
from uv_tool import UV_ENVIRONMENT, find_uv

Profile = Literal["run", "dev"]

_BUILD_LOCK = REQUIREMENTS / "build.txt"
# mlx publishes manylinux_2_35 wheels and no source.
_OLDEST_GLIBC = (2, 35)


def ensure_environment(profile: Profile) -> None:
    """Make `.venv` hold everything the profile names; a no-op when it already does."""
    inputs = _hash_profile(profile)
    if _works() and stamps.is_current(_stamp(profile), inputs):
        return
    check_glibc(platform.libc_ver())
    uv = find_uv()
    with timed(f"virtual environment ({profile})"):
        if not _works():
            _uv(uv, "venv", "--quiet", "--clear", "--python", sys.executable, VENV)
        _uv(uv, *_pip_install(), "--require-hashes", "--requirement", REQUIREMENTS / f"{profile}.txt")
        _uv(uv, *_pip_install(), "--no-deps", "--build-constraints", _BUILD_LOCK, "--editable", ROOT)
    stamps.write(_stamp(profile), inputs)
    if profile == "dev":
        stamps.write(_stamp("run"), _hash_profile("run"))


def check_glibc(libc: tuple[str, str]) -> None:
    """Refuse a Linux on which no MLX wheel can be installed, before the resolver does so in many more words."""
    name, version = libc
    match = re.match(r"(\d+)\.(\d+)", version)
    if name == "glibc" and match and (int(match[1]), int(match[2])) < _OLDEST_GLIBC:
        message = f"MLX needs glibc 2.35 or newer (Debian 12, Ubuntu 22.04); this machine has {version}"
        raise SetupError(message)


def _pip_install() -> list[str | Path]:
    return ["pip", "install", "--quiet", "--python", VENV_PYTHON]


def _uv(uv: Path, *words: str | Path) -> None:
    # The dashboard is a step of its own, and an editable install reads it from the tree.
    run([uv, *words], env={**UV_ENVIRONMENT, "EXO_DASHBOARD": "skip"})


def _works() -> bool:
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    return VENV_PYTHON.exists() and succeeds([VENV_PYTHON, "-c", check])


def _stamp(profile: Profile) -> Path:
    return VENV / f".exo-{profile}"


def _hash_profile(profile: Profile) -> str:
    return stamps.hash_inputs([REQUIREMENTS / f"{profile}.txt", _BUILD_LOCK, ROOT / "pyproject.toml"])
