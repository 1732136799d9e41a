"""The few things that only the operating system can bring: OpenBLAS, Chromium, pip.

On Debian as root a missing package is installed; everywhere else one line says what to run.
"""

import ctypes.util
import os
import platform
import shutil
from pathlib import Path

from report import say, warn
from tree import run, succeeds

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
    say(f"-- installing the system package {package}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
    # A fresh machine has no package lists yet, an old one has stale ones: both show as a simulated install that fails.
    if not succeeds([*command, "--simulate"]):
        run(["apt-get", "update", "-qq"], env=quiet)
    run(command, env=quiet)
    return True


def ensure_openblas() -> None:
    """Have an OpenBLAS for MLX on Linux. Its absence makes prefill 25 times slower, but stops nothing."""
    if platform.system() != "Linux" or ctypes.util.find_library("openblas"):
        return
    warn("no OpenBLAS found: MLX would fall back to its slow reference BLAS")
    install("libopenblas0-pthread")


def ensure_chromium() -> None:
    """Have a Chromium for tests/browser, which say so themselves when there is none."""
    if any(shutil.which(name) for name in _CHROMIUM_NAMES) or _CHROMIUM_ON_MACOS.exists():
        return
    warn("no Chromium found: the browser tests need one")
    install("chromium")
