"""The import of one GGUF file: read everything that can be refused, then write.

Called by `exo.runners.convert`. Nothing is written before the whole file was understood.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from exo.runners.gguf.folder import build_card, write_descriptions
from exo.runners.gguf.plan import WeightForm, plan_tensors
from exo.runners.gguf.shape import read_shape
from exo.runners.gguf.source import GgufFile
from exo.runners.gguf.staging import stage_folder
from exo.runners.gguf.tokenizer import build_tokenizer
from exo.runners.gguf.weights import write_weights
from exo.streams.models import ModelCard

_DESCRIPTION_BYTES = 32 << 20
"""An upper bound for the files beside the weights."""


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """How far the import is. `done` and `total` in bytes, of the stage."""

    stage: Literal["hashing", "writing"]
    done: int
    total: int


def import_gguf(
    source: Path,
    destination: Path,
    *,
    form: WeightForm,
    model_id: str,
    on_progress: Callable[[Progress], None],
) -> ModelCard:
    """Build the model folder `destination` from a GGUF file and give the model's card.

    Raises `ConversionError`; then `destination` does not exist. Memory stays bounded whatever the
    size of the model.
    """
    with GgufFile(source) as file:
        shape = read_shape(file)
        plans = plan_tensors(file.tensors, shape, form)
        tokenizer, vocabulary = build_tokenizer(file.metadata)
        card = build_card(file, shape, plans, model_id=model_id)
        with stage_folder(destination, card.storage_bytes + _DESCRIPTION_BYTES) as folder:
            sha256 = file.hash_content(lambda done: on_progress(Progress("hashing", done, file.size)))
            done = 0

            def count(written: int) -> None:
                nonlocal done
                done += written
                on_progress(Progress("writing", done, card.storage_bytes))

            write_weights(file, plans, folder, on_bytes=count)
            write_descriptions(
                folder,
                file,
                shape=shape,
                plans=plans,
                vocabulary=vocabulary,
                tokenizer=tokenizer,
                card=card,
                sha256=sha256,
            )
    return card
