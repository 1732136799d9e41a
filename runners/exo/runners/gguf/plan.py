"""Which tensors a model folder will hold and where each comes from. Pure."""

from collections import Counter
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from exo.runners.gguf.blocks import BLOCK_LAYOUTS, GROUP_SIZE, PACKED_BITS
from exo.runners.gguf.errors import FileDamaged, Unsupported
from exo.runners.gguf.families import ROPE_FACTORS, rename_tensor
from exo.runners.gguf.safetensors import OutputTensor
from exo.runners.gguf.shape import ModelShape
from exo.runners.gguf.source import TensorEntry

WeightForm = Literal["native", "float32"]
"""`native` keeps the file's own blocks bit for bit; `float32` computes dense weights."""

_SHARD_BYTES = 4 << 30


class TensorPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One source tensor, the rows' new order, and the one or three tensors it becomes."""

    source: TensorEntry
    module: str
    interleaved_heads: int
    """Heads whose rows must be put back into halves; 0 when the order stays."""

    packed: bool
    outputs: tuple[OutputTensor, ...]

    @property
    def rows(self) -> int:
        """Rows of the source matrix, 1 for a vector."""
        return self.source.shape[0] if len(self.source.shape) > 1 else 1

    def order_rows(self) -> NDArray[np.intp]:
        """Give, for each output row, the source row it is."""
        order = np.arange(self.rows)
        if not self.interleaved_heads:
            return order
        return order.reshape(self.interleaved_heads, -1, 2).swapaxes(1, 2).reshape(-1)

    @property
    def output_bytes(self) -> int:
        """Size of everything this plan writes."""
        return sum(output.size for output in self.outputs)


def plan_tensors(tensors: tuple[TensorEntry, ...], shape: ModelShape, form: WeightForm) -> list[TensorPlan]:
    """Plan every tensor; raises `Unsupported` naming all types or tensors that cannot be imported."""
    refused = Counter(t.type_name for t in tensors if t.type_name not in BLOCK_LAYOUTS)
    if refused:
        named = ", ".join(f"{name} ({count} tensors)" for name, count in sorted(refused.items()))
        remedy = f"use a file quantised as one of {', '.join(BLOCK_LAYOUTS)}"
        raise Unsupported(f"tensor types {named} are not imported", remedy)
    plans = [_plan_tensor(t, shape, form) for t in tensors if t.name != ROPE_FACTORS]
    _check_complete(plans, shape)
    return plans


def plan_shards(plans: list[TensorPlan], limit: int = _SHARD_BYTES) -> list[list[TensorPlan]]:
    """Cut the plans into files of at most `limit` bytes; one tensor is never cut."""
    shards: list[list[TensorPlan]] = [[]]
    filled = 0
    for plan in plans:
        if shards[-1] and filled + plan.output_bytes > limit:
            shards.append([])
            filled = 0
        shards[-1].append(plan)
        filled += plan.output_bytes
    return shards


def describe_quantization(plans: list[TensorPlan]) -> dict[str, object] | None:
    """Give config.json's `quantization`: the most common bits as default, other modules by name."""
    bits = {p.module: PACKED_BITS[p.source.type_name] for p in plans if p.packed}
    if not bits:
        return None
    ((usual, _),) = Counter(bits.values()).most_common(1)
    quantization: dict[str, object] = {"group_size": GROUP_SIZE, "bits": usual, "mode": "affine"}
    for module, count in bits.items():
        if count != usual:
            quantization[module] = {"group_size": GROUP_SIZE, "bits": count, "mode": "affine"}
    return quantization


def _plan_tensor(tensor: TensorEntry, shape: ModelShape, form: WeightForm) -> TensorPlan:
    name = rename_tensor(tensor.name, shape.family)
    if name is None:
        message = f"tensor {tensor.name} has no place in a {shape.family.model_type} model"
        raise Unsupported(message, "get the model in MLX or safetensors form")
    module = name.rpartition(".")[0]
    packed = form == "native" and tensor.type_name in PACKED_BITS
    return TensorPlan(
        source=tensor,
        module=module,
        interleaved_heads=_count_interleaved(module, shape),
        packed=packed,
        outputs=_plan_packed(tensor, module) if packed else (_plan_dense(tensor, name, form),),
    )


def _plan_packed(tensor: TensorEntry, module: str) -> tuple[OutputTensor, ...]:
    rows, columns = tensor.shape
    groups = (rows, columns // GROUP_SIZE)
    words = columns * PACKED_BITS[tensor.type_name] // 32
    return (
        OutputTensor(f"{module}.weight", "U32", (rows, words)),
        OutputTensor(f"{module}.scales", "F16", groups),
        OutputTensor(f"{module}.biases", "F16", groups),
    )


def _plan_dense(tensor: TensorEntry, name: str, form: WeightForm) -> OutputTensor:
    half = form == "native" and tensor.type_name == "F16"
    return OutputTensor(name, "F16" if half else "F32", tensor.shape)


def _count_interleaved(module: str, shape: ModelShape) -> int:
    if not shape.family.interleaved_rope:
        return 0
    counts = {"q_proj": shape.attention_heads, "k_proj": shape.key_value_heads}
    return counts.get(module.rpartition(".")[2], 0)


def _check_complete(plans: list[TensorPlan], shape: ModelShape) -> None:
    present = {plan.source.name for plan in plans}
    needed = {"token_embd.weight", "output_norm.weight"} | {
        f"blk.{layer}.{name}" for layer in range(shape.n_layers) for name in shape.family.layer_tensors
    }
    if missing := sorted(needed - present):
        shown = ", ".join(missing[:3])
        message = f"{len(missing)} tensors are missing, among them {shown}"
        raise FileDamaged(message, "get the file again, or a complete one")
