"""What must lie in a model folder. Needs no MLX, so that a missing file is told before seconds of imports."""

from pathlib import Path

import msgspec

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def check_files(folder: Path) -> None:
    """Raise `FileNotFoundError` naming everything that is missing."""
    missing = [] if (folder / "config.json").exists() else ["config.json"]
    if not any((folder / name).exists() for name in _TOKENIZER_FILES):
        missing.append("tokenizer.json")
    index = folder / "model.safetensors.index.json"
    if index.exists():
        shards = set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values())
        missing += sorted(name for name in shards if not (folder / name).exists())
    elif not any(folder.glob("model*.safetensors")):
        missing.append("model.safetensors")
    if missing:
        raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}; add the model again")
