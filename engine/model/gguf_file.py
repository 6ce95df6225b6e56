"""The header of a GGUF file, read with every count bounded by the bytes that are really there.

Enters: a path. Leaves: metadata and tensor entries whose data lies inside the file and does not overlap. Owns a
read-only map of the file, freed with the object. A crafted or cut file is a ModelError, never a large allocation."""

from __future__ import annotations

import mmap
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from engine.errors import ModelError

Scalar = int | float | bool | str
Value = Scalar | list[int] | list[float] | list[bool] | list[str]
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_DIMS = 4
_SMALLEST_ENTRY = 13
"""Bytes of the shortest metadata entry: a name's length, one letter's worth of name, a type."""


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    """Row-major: the fastest dimension last, the other way round than in the file."""
    kind: gguf.GGMLQuantizationType
    start: int
    size_bytes: int


class GGUFFile:
    """metadata: key -> value.  tensors: name -> Tensor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map = _open(path)
        self.size_bytes = len(self._map)
        self._at = 0
        self.metadata: dict[str, Value] = {}
        self.tensors: dict[str, Tensor] = {}
        try:
            self._read()
        except (struct.error, UnicodeDecodeError, ValueError, OverflowError) as error:
            raise self._broken(str(error)) from None

    def data(self, tensor: Tensor, first_row: int, rows: int) -> np.ndarray:
        """float32 of `rows` rows (all leading dimensions flattened).   Raises ModelError for a type unknown to gguf."""
        width = tensor.shape[-1]
        row_bytes = tensor.size_bytes * width // int(np.prod(tensor.shape))
        raw = np.frombuffer(self._map, np.uint8, rows * row_bytes, tensor.start + first_row * row_bytes)
        try:
            values = gguf.quants.dequantize(_typed(raw, tensor.kind).reshape(rows, -1), tensor.kind)
        except NotImplementedError:
            raise ModelError(
                f"{self.path}: tensor {tensor.name} is {tensor.kind.name}, which cannot be converted; "
                "get the file in another quantisation, e.g. Q8_0"
            ) from None
        return np.asarray(values, np.float32).reshape(rows, width)

    def _read(self) -> None:
        if self._take(4) != b"GGUF":
            raise self._broken("it does not begin with GGUF (an HTML page or a git-lfs pointer saved in its place?)")
        version = self._scalar("I")
        if version not in (2, 3):
            raise self._broken(f"GGUF version {version} is not supported, only 2 and 3, little-endian")
        num_tensors = self._count("Q", "tensor", 25)
        num_keys = self._count("Q", "metadata key", _SMALLEST_ENTRY)
        for _ in range(num_keys):
            self._read_entry()
        for _ in range(num_tensors):
            self._read_tensor()
        self._place_tensors()

    def _read_entry(self) -> None:
        key = self._string()
        if not key:
            raise self._broken("a metadata key is empty")
        if key in self.metadata:
            raise self._broken(f"metadata key {key!r} appears twice")
        self.metadata[key] = self._value(int(self._scalar("I")), key)

    def _value(self, kind: int, key: str) -> Value:
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            raise self._broken(f"metadata key {key!r} has the unknown type {kind}")
        element = int(self._scalar("I"))
        if element == _STRING:
            return [self._string() for _ in range(self._count("Q", f"{key} string", 8))]
        if element not in _SCALARS:
            raise self._broken(f"metadata key {key!r} is an array of the unknown type {element}")
        code = _SCALARS[element]
        count = self._count("Q", f"{key} element", struct.calcsize(code))
        return list(struct.unpack(f"<{count}{code}", self._take(count * struct.calcsize(code))))

    def _read_tensor(self) -> None:
        name = self._string()
        if not name or name in self.tensors:
            raise self._broken(f"tensor name {name!r} is empty or appears twice")
        dims = int(self._scalar("I"))
        if not 1 <= dims <= _MAX_DIMS:
            raise self._broken(f"tensor {name!r} has {dims} dimensions, 1 to {_MAX_DIMS} were expected")
        shape = tuple(int(self._scalar("Q")) for _ in range(dims))[::-1]
        kind_number, offset = int(self._scalar("I")), int(self._scalar("Q"))
        try:
            kind = gguf.GGMLQuantizationType(kind_number)
        except ValueError:
            raise self._broken(f"tensor {name!r} has the unknown type {kind_number}") from None
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        elements = 1
        for size in shape:
            elements *= size
        if elements == 0 or shape[-1] % block or elements // block * block_bytes > self.size_bytes:
            raise self._broken(f"tensor {name!r} of shape {list(shape)}, {kind.name}, does not fit into the file")
        self.tensors[name] = Tensor(name, shape, kind, offset, elements // block * block_bytes)

    def _place_tensors(self) -> None:
        """Offsets count from the aligned end of the header; each tensor must lie in the file, beside the others."""
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
            raise self._broken(f"general.alignment is {alignment!r}")
        base = -(-self._at // alignment) * alignment
        end = base
        placed = {}
        for tensor in sorted(self.tensors.values(), key=lambda item: item.start):
            start = base + tensor.start
            if start < end:
                raise self._broken(f"tensor {tensor.name!r} overlaps another")
            end = start + tensor.size_bytes
            if end > self.size_bytes:
                raise self._broken(f"tensor {tensor.name!r} ends at byte {end}, the file has {self.size_bytes}")
            placed[tensor.name] = Tensor(tensor.name, tensor.shape, tensor.kind, start, tensor.size_bytes)
        self.tensors = placed

    def _take(self, size: int) -> bytes:
        if size > self.size_bytes - self._at:
            raise self._broken(f"it ends at byte {self.size_bytes} in the middle of its header")
        piece = self._map[self._at : self._at + size]
        self._at += size
        return piece

    def _scalar(self, code: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(f"<{code}", self._take(struct.calcsize(code)))[0]
        return value

    def _string(self) -> str:
        return self._take(int(self._scalar("Q"))).decode("utf-8")

    def _count(self, code: str, what: str, smallest_bytes: int) -> int:
        count = int(self._scalar(code))
        if count * smallest_bytes > self.size_bytes - self._at:
            raise self._broken(f"it claims {count} times {what}, more than its {self.size_bytes} bytes can hold")
        return count

    def _broken(self, reason: str) -> ModelError:
        return ModelError(f"{self.path}: not a usable GGUF file: {reason}; download it again")


def _open(path: Path) -> mmap.mmap:
    try:
        # A FIFO would block the open itself for ever.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ModelError(f"{path}: cannot be opened ({error.strerror})") from None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise ModelError(f"{path}: not a regular file; give a .gguf file")
        if info.st_size == 0:
            raise ModelError(f"{path}: the file is empty; download it again")
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(fd)


def _typed(raw: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    if kind == gguf.GGMLQuantizationType.F32:
        return raw.view(np.float32)
    if kind == gguf.GGMLQuantizationType.F16:
        return raw.view(np.float16)
    return raw
