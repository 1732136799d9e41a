"""The few things that only the operating system can bring: OpenBLAS, Chromium, pip.

On Debian as root a missing package is installed; everywhere else one line says what to run.
"""

import ctypes.util
import os
import platform
import shutil
from pathlib import Path

from report import SetupError, say, timed, warn
from tree import run_quietly

_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
_CHROMIUM_ON_MACOS = Path("/Applications/Google Chrome.app")


def install(package: str) -> bool:
    """Install one Debian package if this process may; otherwise print the line that does. True when it is there."""
    if shutil.which("apt-get") is None:
        warn(f"install `{package}`, or what your system calls it, by its package manager")
        return False
    if os.geteuid() != 0:
        warn(f"to install it, run: sudo apt-get install -y {package}")
        return False
    with timed(f"system package {package}"):
        _install_as_root(package)
    return True


def _install_as_root(package: str) -> None:
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
    try:
        run_quietly(command, env=quiet)
    except SetupError:
        # A fresh machine has no package lists yet, an old one has lists that name what the mirror dropped.
        run_quietly(["apt-get", "update", "-qq"], env=quiet)
        run_quietly(command, env=quiet)


def ensure_openblas() -> None:
    """Have an OpenBLAS for MLX on Linux. Its absence makes prefill 25 times slower, but stops nothing."""
    if platform.system() != "Linux" or ctypes.util.find_library("openblas"):
        return
    say("-- OpenBLAS was not found: without it MLX computes with its slow reference BLAS")
    _install_if_possible("libopenblas0-pthread")


def ensure_chromium() -> None:
    """Have a Chromium for tests/browser, which say so themselves when there is none."""
    if any(shutil.which(name) for name in _CHROMIUM_NAMES) or _CHROMIUM_ON_MACOS.exists():
        return
    say("-- Chromium was not found: tests/browser needs one")
    _install_if_possible("chromium")


def _install_if_possible(package: str) -> None:
    try:
        install(package)
    except SetupError as error:
        warn(str(error))
