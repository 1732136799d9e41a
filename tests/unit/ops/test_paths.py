"""Directories: XDG on Linux, one directory on macOS, and everything below a data directory."""

import stat
from pathlib import Path

import pytest

from exo.ops import paths as paths_module
from exo.ops.errors import SettingsError
from exo.ops.model_directories import find_model_directories
from exo.ops.paths import find_paths
from exo.ops.settings import Settings


def test_linux_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths_module.sys, "platform", "linux")
    environment = {"HOME": "/h", "XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "relative/is/ignored"}
    paths = find_paths(None, environment)
    assert (paths.config, paths.data, paths.cache) == (Path("/h/.config/exo"), Path("/d/exo"), Path("/h/.cache/exo"))


def test_macos_keeps_all_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths_module.sys, "platform", "darwin")
    paths = find_paths(None, {"HOME": "/h", "XDG_DATA_HOME": "/d"})
    assert (paths.config, paths.data, paths.cache) == (Path("/h/.exo"), Path("/h/.exo"), Path("/h/.exo/cache"))


def test_a_data_directory_holds_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = find_paths(Path("box"), {"HOME": "/h", "XDG_DATA_HOME": "/d"})
    root = tmp_path / "box"
    files = [paths.config_file, paths.node_id_file, paths.lock_file, paths.node_file, paths.log_file]
    directories = [paths.models, paths.store, paths.logs]
    assert all(path.is_relative_to(root) for path in [*files, *directories])
    assert len({*files, *directories}) == len(files) + len(directories)


def test_prepared_directories_are_the_owners_only(tmp_path: Path) -> None:
    paths = find_paths(tmp_path / "box")
    paths.prepare()
    paths.prepare()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (paths.data, paths.cache, paths.logs)] == [0o700] * 3


def test_a_models_directory_in_both_lists_is_read_only() -> None:
    settings = Settings(
        default_models_dir=Path("/a"),
        models_dirs=(Path("/b"), Path("/c")),
        models_read_only_dirs=(Path("/b"), Path("/d")),
    )
    found = find_model_directories(settings, find_paths(Path("/box")))
    assert found.writable == (Path("/a"), Path("/c"))
    assert found.read_only == (Path("/b"), Path("/d"))
    assert found.all == (Path("/a"), Path("/c"), Path("/b"), Path("/d"))


def test_models_lie_in_the_data_directory_unless_said_otherwise() -> None:
    assert find_model_directories(Settings(), find_paths(Path("/box"))).all == (Path("/box/models"),)


def test_a_node_needs_one_models_directory_to_write_to() -> None:
    settings = Settings(models_read_only_dirs=(Path("/box/models"),))
    with pytest.raises(SettingsError, match="read-only"):
        find_model_directories(settings, find_paths(Path("/box")))
