"""The loop that carries weights from a GGUF file to safetensors, a block of rows at a time."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from exo.runners.gguf.blocks import pack, unpack
from exo.runners.gguf.plan import TensorPlan, plan_shards
from exo.runners.gguf.safetensors import DTYPES, SafetensorsFile
from exo.runners.gguf.source import GgufFile, measure_row

_BLOCK_BYTES = 16 << 20
"""Source bytes per step; decoding needs about ten times as much memory."""


def write_weights(file: GgufFile, plans: list[TensorPlan], folder: Path, *, on_bytes: Callable[[int], None]) -> None:
    """Write all tensors and their index; `on_bytes` is told the size of each finished tensor."""
    shards = plan_shards(plans)
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        name = "model.safetensors"
        if len(shards) > 1:
            name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        outputs = [output for plan in shard for output in plan.outputs]
        weight_map |= {output.name: name for output in outputs}
        with SafetensorsFile(folder / name, outputs) as target:
            for plan in shard:
                _write_tensor(file, plan, target)
                on_bytes(plan.output_bytes)
    total = sum(plan.output_bytes for plan in plans)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def _write_tensor(file: GgufFile, plan: TensorPlan, target: SafetensorsFile) -> None:
    for first, rows in _read_blocks(file, plan):
        if plan.packed:
            packed = pack(rows, plan.source.type_name)
            parts = (packed.weight, packed.scales, packed.biases)
            for output, part in zip(plan.outputs, parts, strict=True):
                target.write_rows(output.name, first, part)
        else:
            (output,) = plan.outputs
            dense = unpack(rows, plan.source.type_name).astype(DTYPES[output.dtype], copy=False)
            target.write_rows(output.name, first, dense)


def _read_blocks(file: GgufFile, plan: TensorPlan) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    order = plan.order_rows()
    step = max(1, _BLOCK_BYTES // measure_row(plan.source))
    for first in range(0, len(order), step):
        yield first, file.read_rows(plan.source, order[first : first + step])
