"""Safetensors files written region by region, so that no tensor is ever whole in memory.

Format: 8 bytes header length, JSON header, data; see the safetensors README.
"""

import json
import math
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

DTYPES = {"U32": np.dtype("<u4"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2")}


class OutputTensor(msgspec.Struct, frozen=True):
    """Name, type and shape of one tensor in a file."""

    name: str
    dtype: Literal["U32", "F32", "F16"]
    shape: tuple[int, ...]

    @property
    def row_size(self) -> int:
        """Bytes of one row; of the whole when it is a vector."""
        return DTYPES[self.dtype].itemsize * self.shape[-1]

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return DTYPES[self.dtype].itemsize * math.prod(self.shape)


class SafetensorsFile:
    """A file whose header is written at once and whose rows arrive in any order. A context manager.

    Leaving it without an error makes the content durable; the caller sees to it that every row came.
    """

    def __init__(self, path: Path, tensors: list[OutputTensor]) -> None:
        # Wide types first keep every tensor aligned to its own type.
        ordered = sorted(tensors, key=lambda tensor: -DTYPES[tensor.dtype].itemsize)
        header: dict[str, object] = {"__metadata__": {"format": "mlx"}}
        self._tensors: dict[str, tuple[OutputTensor, int]] = {}
        end = 0
        for tensor in ordered:
            offsets = [end, end := end + tensor.size]
            header[tensor.name] = {
                "dtype": tensor.dtype,
                "shape": tensor.shape,
                "data_offsets": offsets,
            }
            self._tensors[tensor.name] = (tensor, offsets[0])
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._start = 8 + len(text)
        self._handle = path.open("wb")
        self._handle.write(struct.pack("<Q", len(text)) + text)
        self._handle.truncate(self._start + end)

    def write_rows(self, name: str, first: int, rows: NDArray[Any]) -> None:
        """Write rows of the tensor, from row `first` on; their type must be the tensor's."""
        tensor, offset = self._tensors[name]
        if rows.dtype != DTYPES[tensor.dtype]:
            message = f"{name} is {tensor.dtype}, got rows of {rows.dtype}"
            raise TypeError(message)
        self._handle.seek(self._start + offset + first * tensor.row_size)
        self._handle.write(np.ascontiguousarray(rows).data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._handle:
            if kind is None:
                self._handle.flush()
                os.fsync(self._handle.fileno())
