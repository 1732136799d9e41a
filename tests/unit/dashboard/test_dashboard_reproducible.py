"""The same sources give the same bytes, so that a wheel can be checked by building it again."""

import shutil
import subprocess
from pathlib import Path

import pytest

from support.tracked import ROOT

WEB = ROOT / "dashboard" / "web"


def build_into(folder: Path) -> dict[str, bytes]:
    command = ["npm", "run", "--silent", "build", "--", "--outDir", str(folder), "--logLevel", "error"]
    subprocess.run(command, cwd=WEB, check=True, timeout=120)
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.full
def test_two_clean_builds_are_identical(tmp_path: Path) -> None:
    if shutil.which("npm") is None or not (WEB / "node_modules").is_dir():
        pytest.skip("needs npm and the installed packages: run `make dashboard`")
    first = build_into(tmp_path / "first")
    assert "index.html" in first
    assert build_into(tmp_path / "second") == first
