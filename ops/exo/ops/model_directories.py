"""Where a node looks for models, and where it may write them: from the settings. Pure."""

from pathlib import Path

import msgspec

from exo.ops.errors import SettingsError
from exo.ops.paths import Paths
from exo.ops.settings import Settings


class ModelDirectories(msgspec.Struct, frozen=True):
    """`writable` in order of preference, never empty; `read_only` ones are searched after them."""

    writable: tuple[Path, ...]
    read_only: tuple[Path, ...]

    @property
    def all(self) -> tuple[Path, ...]:
        """Every directory, in the order they are searched."""
        return (*self.writable, *self.read_only)


def find_model_directories(settings: Settings, paths: Paths) -> ModelDirectories:
    """Sort the directories; one that is named in both lists is read-only. `SettingsError` when all are."""
    named = (settings.default_models_dir or paths.models, *settings.models_dirs)
    read_only = tuple(dict.fromkeys(settings.models_read_only_dirs))
    writable = tuple(path for path in dict.fromkeys(named) if path not in read_only)
    if not writable:
        raise SettingsError(
            "every models directory is read-only", remedy="leave one out of models_read_only_dirs, or name another"
        )
    return ModelDirectories(writable, read_only)
