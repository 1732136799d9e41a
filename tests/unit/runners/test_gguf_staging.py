"""A model folder appears whole or not at all, also when the import is killed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exo.runners.gguf.errors import DestinationTaken, DiskFull
from exo.runners.gguf.staging import stage_folder, sweep_leftovers
from support.gguf_files import random_weights, write_gguf

KILLED_WHILE_WRITING = """
import sys
from pathlib import Path
from exo.runners.gguf.importer import import_gguf

def tell(progress):
    if progress.stage == "writing" and progress.done > progress.total / 2:
        print("half", flush=True)
        sys.stdin.read()

import_gguf(Path(sys.argv[1]), Path(sys.argv[2]), form="native", model_id="x", on_progress=tell)
"""


def start_import(source: Path, destination: Path) -> subprocess.Popen[str]:
    """An import in a process of its own that waits half-way through its weights."""
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(source), str(destination)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=10)


def test_a_killed_import_leaves_no_model_and_is_cleaned_up_by_the_next(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "tiny.gguf", random_weights())
    models = tmp_path / "models"
    kill(start_import(source, models / "tiny"))
    assert not (models / "tiny").exists()
    (leftover,) = models.iterdir()
    assert (leftover / "model.safetensors").exists()
    with stage_folder(models / "tiny", 0) as folder:
        assert not leftover.exists()
        (folder / "config.json").write_text("{}")
    assert [path.name for path in models.iterdir()] == ["tiny"]


def test_an_import_at_work_is_not_swept_away(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "tiny.gguf", random_weights())
    models = tmp_path / "models"
    process = start_import(source, models / "tiny")
    try:
        assert sweep_leftovers(models) == []
        _, _ = process.communicate("go on", timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert [path.name for path in models.iterdir()] == ["tiny"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def break_off() -> None:
        with stage_folder(tmp_path / "models" / "tiny", 0) as folder:
            (folder / "config.json").write_text("{}")
            raise KeyError

    with pytest.raises(KeyError):
        break_off()
    assert list((tmp_path / "models").iterdir()) == []


def test_what_stands_there_is_never_overwritten(tmp_path: Path) -> None:
    destination = tmp_path / "tiny"

    def race() -> None:
        with stage_folder(destination, 0) as folder:
            (folder / "mine").touch()
            destination.mkdir()
            (destination / "theirs").touch()

    with pytest.raises(DestinationTaken):
        race()
    assert [path.name for path in tmp_path.rglob("*")] == ["tiny", "theirs"]
    with pytest.raises(DestinationTaken), stage_folder(destination, 0):
        pytest.fail("entered")


def test_a_full_disk_is_noticed_before_writing(tmp_path: Path) -> None:
    needed = shutil.disk_usage(tmp_path).free + 1
    with pytest.raises(DiskFull, match="MiB are free; free space under"), stage_folder(tmp_path / "tiny", needed):
        pytest.fail("entered")
    assert list(tmp_path.iterdir()) == []
