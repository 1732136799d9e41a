"""`exo uninstall` takes away what exo wrote, and nothing else."""

from pathlib import Path

import pytest

from exo.ops import cli
from exo.ops.lock import DirectoryLock
from exo.ops.paths import Paths, find_paths
from exo.ops.secret import new_secret, store_secret


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A data directory as a node leaves it, with a model and something of the person's own."""
    paths = find_paths(tmp_path / "box")
    paths.prepare()
    for file in (paths.config_file, paths.node_id_file, paths.machine_file, paths.node_file, paths.log_file):
        file.write_text("")
    (paths.store / "jetstream").mkdir(parents=True)
    store_secret(paths, new_secret())
    with DirectoryLock(paths.lock_file):
        pass
    return paths


@pytest.fixture
def model(paths: Paths) -> Path:
    folder = paths.models / "org--tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2}')
    (folder / "model.safetensors").write_bytes(b"x")
    return folder


def run(paths: Paths, *arguments: str) -> int:
    return cli.run(["uninstall", "--data-dir", str(paths.data), *arguments])


def test_models_are_kept_unless_told(paths: Paths, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(paths, "--yes") == 0
    assert [path.name for path in paths.data.iterdir()] == ["models"]
    assert (model / "config.json").exists()
    shown = capsys.readouterr()
    assert f"remove {paths.store}" in shown.out
    assert f"keep   {paths.models}" in shown.out
    assert f"{paths.data} stays" in shown.err
    assert run(paths, "--yes", "--delete-models") == 0
    assert not paths.data.exists()


def test_nothing_of_the_persons_own_is_touched(paths: Paths, model: Path) -> None:
    letter, notes = paths.data / "letter.txt", paths.models / "notes.txt"
    letter.touch()
    notes.touch()
    assert run(paths, "--yes", "--delete-models") == 0
    assert letter.exists()
    assert notes.exists()
    assert not model.exists()


def test_a_directory_that_is_a_link_is_not_followed(paths: Paths, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (paths.store / "jetstream").rmdir()
    paths.store.rmdir()
    paths.store.symlink_to(elsewhere)
    assert run(paths, "--yes") == 0
    assert (elsewhere / "precious").exists()
    assert not paths.data.exists()


def test_a_running_node_is_in_the_way(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    with DirectoryLock(paths.lock_file):
        assert run(paths, "--yes") == 1
    assert "--stop" in capsys.readouterr().err
    assert paths.node_id_file.exists()


def test_nobody_to_ask_is_no_yes(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(paths) == 2
    assert "--yes" in capsys.readouterr().err
    assert paths.node_id_file.exists()


def test_where_nothing_is_there_is_nothing_to_remove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["uninstall", "--data-dir", str(tmp_path / "none")]) == 0
    assert "Nothing to remove" in capsys.readouterr().err


def test_settings_that_cannot_be_read_do_not_keep_anybody(paths: Paths) -> None:
    paths.config_file.write_text("port = ")
    assert run(paths, "--yes") == 0
    assert not paths.data.exists()
