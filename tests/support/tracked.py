"""The files of this repository as git sees them, for tests about the tree itself."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("streams", "broker", "services", "runners", "gateway", "dashboard", "ops")


@cache
def list_files() -> tuple[Path, ...]:
    """All files that are committed or about to be, absolute; built and fetched ones are left out by .gitignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return tuple(ROOT / name for name in names if name and (ROOT / name).is_file())


def list_sources(*suffixes: str) -> list[Path]:
    """The files with one of the given suffixes."""
    return [file for file in list_files() if file.suffix in suffixes]


def name_of(file: Path) -> str:
    """A file's name as a person would write it: relative to the repository."""
    return file.relative_to(ROOT).as_posix()
