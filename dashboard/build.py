"""Builds the dashboard with npm: `python dashboard/build.py auto|require|skip`, standard library only.

Called by the build hook when a wheel is made and by `make dashboard`. A build is current while `static/build.json`
holds the hash of the sources it was made from, so calling this twice costs one read of the sources.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WEB = HERE / "web"
STATIC = HERE / "exo" / "dashboard" / "static"
RECORD = STATIC / "build.json"

_NOT_SOURCES = {"node_modules", "dist", "coverage", "test-results"}
_NO_NPM = "npm was not found; `make dashboard` fetches it, or install Node 20 or newer"


class DashboardError(Exception):
    """The pages cannot be built; the message says what is missing."""


def hash_sources(web: Path) -> str:
    """One hash over the names and contents of all the files that a build can depend on."""
    digest = hashlib.sha256()
    for file in sorted(web.rglob("*")):
        relative = file.relative_to(web)
        if file.is_file() and not _NOT_SOURCES.intersection(relative.parts):
            content = file.read_bytes()
            digest.update(f"{relative.as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def is_current() -> bool:
    """Whether the built pages stand and were made from the sources as they are now."""
    if not RECORD.is_file() or not (STATIC / "index.html").is_file():
        return False
    return json.loads(RECORD.read_text()) == {"sources": hash_sources(WEB)}


def install_packages() -> None:
    """`npm ci`, unless node_modules was already installed from this very lock."""
    lock = (WEB / "package-lock.json").read_text()
    installed = WEB / "node_modules" / ".exo-lock.json"
    if installed.is_file() and installed.read_text() == lock:
        return
    _npm("ci", "--no-audit", "--no-fund")
    installed.write_text(lock)


def build() -> None:
    """Install what the lock names, build, and record what it was built from."""
    if shutil.which("npm") is None:
        raise DashboardError(_NO_NPM)
    sources = hash_sources(WEB)
    install_packages()
    _npm("run", "build")
    RECORD.write_text(json.dumps({"sources": sources}) + "\n")


def _npm(*words: str) -> None:
    code = subprocess.run(["npm", *words], cwd=WEB, check=False).returncode
    if code != 0:
        message = f"`npm {' '.join(words)}` in dashboard/web ended with exit code {code}"
        raise DashboardError(message)


def main(mode: str) -> int:
    """Build as the mode asks: `auto` goes on without npm, `require` fails, `skip` does nothing."""
    if mode not in {"auto", "require", "skip"}:
        print(f"error: EXO_DASHBOARD is auto, require or skip, not {mode!r}", file=sys.stderr)
        return 2
    if mode == "skip" or is_current():
        return 0
    try:
        build()
    except DashboardError as error:
        if mode == "auto" and str(error) == _NO_NPM:
            print(f"warning: the dashboard is left out: {error}", file=sys.stderr)
            return 0
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
