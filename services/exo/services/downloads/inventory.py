"""The complete models in this node's model directories. Reads small files; never writes.

A folder counts when it holds `exo_card.json` (written by `exo.runners.convert`) or a plain MLX
`config.json`, and every weight file that its index names, or at least one without an index.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import structlog

from exo.services.downloads.config import build_card
from exo.streams.downloads import ModelReport
from exo.streams.ids import ModelId
from exo.streams.models import ModelCard

log = structlog.get_logger(__name__)

CARD_FILE = "exo_card.json"
MODEL_NAME = re.compile(r"^[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?$", re.ASCII)
"""A name that can become a folder's: `name` or `org/name`."""
_CONFIG_FILE = "config.json"
_INDEX_FILE = "model.safetensors.index.json"


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A complete model on disk."""

    card: ModelCard
    folder: Path
    writable: bool
    size_bytes: int


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str] = {}


def folder_name(model: ModelId) -> str:
    """Give the name of a model's folder: `org/name` becomes `org--name`."""
    return model.replace("/", "--")


def scan(directories: tuple[Path, ...], *, read_only: tuple[Path, ...] = ()) -> dict[ModelId, Held]:
    """Find every complete model; the first directory that holds one wins, `read_only` ones come last."""
    found: dict[ModelId, Held] = {}
    for directory in (*directories, *read_only):
        for folder in _list_folders(directory):
            held = _read_folder(folder, writable=directory not in read_only)
            if held is not None:
                found.setdefault(held.card.model_id, held)
    return found


def report(held: Held) -> ModelReport:
    """Describe a held model for the log."""
    return ModelReport(
        card=held.card,
        status="complete" if held.writable else "read_only",
        size_bytes=held.size_bytes,
        total_bytes=held.size_bytes,
    )


def _list_folders(directory: Path) -> Iterator[Path]:
    try:
        # Hidden ones are imports at work.
        yield from sorted(path for path in directory.iterdir() if path.is_dir() and not path.name.startswith("."))
    except FileNotFoundError:
        return
    except OSError:
        log.warning("a models directory cannot be read", directory=str(directory), exc_info=True)


def _read_folder(folder: Path, *, writable: bool) -> Held | None:
    try:
        weights = _list_weights(folder)
        if not weights or not (folder / _CONFIG_FILE).is_file():
            return None
        size = sum(path.stat().st_size for path in weights)
        card = _read_card(folder, size)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("a model folder is skipped", folder=str(folder), reason=str(error))
        return None
    return Held(card=card, folder=folder, writable=writable and os.access(folder, os.W_OK), size_bytes=size)


def _list_weights(folder: Path) -> list[Path]:
    """Give all weight files, or nothing when one that the index names is missing."""
    index = folder / _INDEX_FILE
    if index.is_file():
        names = set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values())
        paths = [folder / name for name in sorted(names)]
        return paths if all(path.is_file() for path in paths) else []
    return sorted(folder.glob("*.safetensors"))


def _read_card(folder: Path, size: int) -> ModelCard:
    card_file = folder / CARD_FILE
    if card_file.is_file():
        return msgspec.json.decode(card_file.read_bytes(), type=ModelCard)
    config: dict[str, Any] = msgspec.json.decode((folder / _CONFIG_FILE).read_bytes(), type=dict[str, Any])
    return build_card(config, model_id=ModelId(folder.name.replace("--", "/", 1)), storage_bytes=size)
