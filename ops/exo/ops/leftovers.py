"""What exo has put on this machine, for `exo uninstall`: found here, removed in one place.

Only what exo itself has written is named, never a whole directory that a person chose: a data
directory may be a home directory, and a models directory may be shared with other programs.
"""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from exo.ops.errors import CommandError
from exo.ops.paths import Paths


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """`remove` goes, `keep` stays; only what exists. `directories` go if nothing is left in them."""

    remove: tuple[Path, ...]
    keep: tuple[Path, ...]
    directories: tuple[Path, ...]


def find_leftovers(
    paths: Paths, *, models: Iterable[Path], model_directories: Iterable[Path], delete_models: bool
) -> Leftovers:
    """Sort what is there. `models` are the folders of single models, `model_directories` what holds them."""
    held = [folder for folder in models if folder.is_dir()]
    kept = [directory for directory in dict.fromkeys(model_directories) if directory.is_dir()]
    ours = [path for path in _list_own(paths) if path.exists()]
    return Leftovers(
        remove=tuple([*ours, *held] if delete_models else ours),
        keep=() if delete_models else tuple(kept),
        directories=tuple(dict.fromkeys([*(kept if delete_models else ()), paths.cache, paths.data, paths.config])),
    )


def _list_own(paths: Paths) -> Iterator[Path]:
    yield from paths.configuration
    yield from paths.state
    yield from paths.caches


def remove_leftovers(leftovers: Leftovers) -> list[Path]:
    """Remove it; gives the directories that stay because something else lies in them."""
    for path in leftovers.remove:
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}", remedy="remove it as its owner, then go on") from error
    return [directory for directory in leftovers.directories if not _remove_if_empty(directory)]


def _remove_if_empty(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
