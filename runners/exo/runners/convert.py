"""`python -m exo.runners.convert FILE.gguf FOLDER`: a model file becomes a model folder.

Started by `exo models import` and the catalogue as a process of its own. Standard output carries one
JSON object per line: `progress`, then `done` or `error`. Exit status: 0 done, 1 refused or failed,
2 wrong usage. Needs no MLX.
"""

import argparse
import sys
from pathlib import Path
from typing import get_args

import msgspec

from exo.runners.gguf.errors import ConversionError
from exo.runners.gguf.importer import Progress, import_gguf
from exo.runners.gguf.plan import WeightForm
from exo.streams.models import ModelCard


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The folder stands, whole and durable."""

    path: str
    card: ModelCard


class Refused(msgspec.Struct, frozen=True, tag="error"):
    """Nothing was left behind; `remedy` says what to do."""

    code: str
    message: str
    remedy: str


Line = Progress | Done | Refused


def main(arguments: list[str] | None = None) -> int:
    """Convert as the arguments say; give the exit status."""
    options = _parse(arguments)
    source, folder = Path(options.file), Path(options.folder).absolute()
    model_id: str = options.model_id or folder.name
    form: WeightForm = options.weights
    try:
        card = import_gguf(source, folder, form=form, model_id=model_id, on_progress=_Throttle())
    except ConversionError as error:
        return _refuse(error.code, error.message, error.remedy)
    except OSError as error:
        return _refuse("io_error", str(error), "check that the path exists and the disk has space")
    _say(Done(str(folder), card))
    return 0


class _Throttle:
    """Says progress once per percent: a large file has tens of thousands of steps."""

    def __init__(self) -> None:
        self._said = ("", -1)

    def __call__(self, progress: Progress) -> None:
        percent = (progress.stage, 100 * progress.done // max(progress.total, 1))
        if percent != self._said:
            self._said = percent
            _say(progress)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m exo.runners.convert",
        description="Turn a GGUF file into a model folder that exo can run.",
        epilog="example: python -m exo.runners.convert smollm2.Q4_1.gguf models/smollm2",
    )
    parser.add_argument("file", help="the .gguf file")
    parser.add_argument("folder", help="the folder to create; must not exist")
    parser.add_argument(
        "--weights",
        choices=get_args(WeightForm),
        default="native",
        help="native keeps the file's blocks bit for bit (default), float32 computes dense weights",
    )
    parser.add_argument("--model-id", help="the name to run it by (default: the folder's name)")
    return parser.parse_args(arguments)


def _refuse(code: str, message: str, remedy: str) -> int:
    _say(Refused(code, message, remedy))
    sys.stderr.write(f"error: {message}; {remedy}\n")
    return 1


def _say(line: Line) -> None:
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
