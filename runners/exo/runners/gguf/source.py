"""A GGUF file opened for reading: its metadata and its tensors, mapped and not copied.

Written for this use because the `gguf` package needs seconds for one vocabulary. Only versions 2
and 3 in little-endian order are read. Format: ggml docs/gguf.md.
"""

import hashlib
import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeAlias, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from exo.runners.gguf.blocks import BLOCK_LAYOUTS, name_type
from exo.runners.gguf.errors import FileDamaged, Unsupported

Scalar: TypeAlias = int | float | bool | str
Value: TypeAlias = Scalar | list[Scalar]
Metadata: TypeAlias = dict[str, Value]

_DOWNLOAD_AGAIN = "fetch the file again and compare its size and checksum"
_DEFAULT_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
_SCALAR_FORMATS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip


class TensorEntry(msgspec.Struct, frozen=True):
    """One tensor: `shape` is (rows, columns) or (length,), outermost dimension first."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    offset: int
    """From the start of the file, in bytes."""


class GgufFile:
    """An open file; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = path.open("rb")
        try:
            self._map = mmap.mmap(self._handle.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            self._handle.close()
            raise FileDamaged(f"{path.name} is empty", _DOWNLOAD_AGAIN) from error
        self._at = 0
        try:
            self.metadata, self.tensors = self._read_head()
        except (struct.error, UnicodeDecodeError) as error:
            self.close()
            message = f"{path.name} ends or breaks inside its head, at byte {self._at}"
            raise FileDamaged(message, _DOWNLOAD_AGAIN) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the file; arrays from `read_rows` stay valid, they are copies."""
        self._map.close()
        self._handle.close()

    def read_rows(self, tensor: TensorEntry, rows: NDArray[np.intp]) -> NDArray[np.uint8]:
        """Copy the stored bytes of some rows: shape (rows, bytes per row)."""
        row_bytes = measure_row(tensor)
        total = row_bytes * (tensor.shape[0] if len(tensor.shape) > 1 else 1)
        stored = np.frombuffer(self._map, np.uint8, total, tensor.offset).reshape(-1, row_bytes)
        picked = stored[rows]
        del stored
        return picked

    def hash_content(self, on_bytes: Callable[[int], None], block: int = 1 << 22) -> str:
        """Give the file's SHA-256 in hex; `on_bytes` is told how far it is after each block."""
        digest = hashlib.sha256()
        for start in range(0, len(self._map), block):
            digest.update(self._map[start : start + block])
            on_bytes(min(start + block, len(self._map)))
        return digest.hexdigest()

    @property
    def size(self) -> int:
        """The file's length in bytes."""
        return len(self._map)

    def _read_head(self) -> tuple[Metadata, tuple[TensorEntry, ...]]:
        if self._map[:4] != b"GGUF":
            raise FileDamaged(f"{self.path.name} is not a GGUF file", "give a .gguf model file")
        self._at = 4
        version, tensors, keys = self._unpack_integers("<IQQ")
        if version not in {2, 3}:
            message = f"{self.path.name} is GGUF version {version}"
            raise Unsupported(message, "convert it again with a current llama.cpp (version 3)")
        metadata: Metadata = {}
        for _ in range(keys):
            name = self._read_string()
            metadata[name] = self._read_value(*self._unpack_integers("<I"))
        entries = [self._read_tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise FileDamaged(f"{self.path.name} has alignment {alignment!r}", _DOWNLOAD_AGAIN)
        start = -(-self._at // alignment) * alignment
        placed = tuple(msgspec.structs.replace(e, offset=start + e.offset) for e in entries)
        self._check_length(placed)
        return metadata, placed

    def _read_tensor(self) -> TensorEntry:
        name = self._read_string()
        (dimensions,) = self._unpack_integers("<I")
        sizes = self._unpack_integers(f"<{dimensions}Q")
        kind, offset = self._unpack_integers("<IQ")
        return TensorEntry(name, name_type(kind), tuple(reversed(sizes)), offset)

    def _check_length(self, tensors: tuple[TensorEntry, ...]) -> None:
        for tensor in tensors:
            if tensor.type_name not in BLOCK_LAYOUTS:
                continue
            rows = tensor.shape[0] if len(tensor.shape) > 1 else 1
            if tensor.offset + rows * measure_row(tensor) > len(self._map):
                message = f"{self.path.name} is cut short: tensor {tensor.name} is not all there"
                raise FileDamaged(message, _DOWNLOAD_AGAIN)

    def _read_value(self, kind: int) -> Value:
        if kind == _STRING:
            return self._read_string()
        if kind != _ARRAY:
            return self._unpack("<" + self._format(kind))[0]
        item, count = self._unpack_integers("<IQ")
        if item == _STRING:
            return [self._read_string() for _ in range(count)]
        return list(self._unpack(f"<{count}{self._format(item)}"))

    def _format(self, kind: int) -> str:
        if kind not in _SCALAR_FORMATS:
            message = f"{self.path.name} holds a value of unknown kind {kind} at byte {self._at}"
            raise FileDamaged(message, _DOWNLOAD_AGAIN)
        return _SCALAR_FORMATS[kind]

    def _read_string(self) -> str:
        (length,) = self._unpack_integers("<Q")
        start, self._at = self._at, self._at + length
        if self._at > len(self._map):
            message = "a string runs past the end"
            raise struct.error(message)
        return self._map[start : self._at].decode("utf-8")

    def _unpack_integers(self, layout: str) -> tuple[int, ...]:
        return cast("tuple[int, ...]", self._unpack(layout))

    def _unpack(self, layout: str) -> tuple[Scalar, ...]:
        values = struct.unpack_from(layout, self._map, self._at)
        self._at += struct.calcsize(layout)
        return values


def measure_row(tensor: TensorEntry) -> int:
    """Count the stored bytes of one row; the type must be in `BLOCK_LAYOUTS`."""
    weights, size = BLOCK_LAYOUTS[tensor.type_name]
    columns = tensor.shape[-1]
    if columns % weights:
        message = f"tensor {tensor.name}: {columns} columns are no whole {tensor.type_name} blocks"
        raise FileDamaged(message, _DOWNLOAD_AGAIN)
    return columns // weights * size
