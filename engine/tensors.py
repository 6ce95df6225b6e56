"""Arrays on the wire: `[dtype, shape, data]`, data inline as extension type 3 or as the number of another frame.

Checked before use: dtype from a list, shape times item size equal to the bytes there are, frame number in range.
Extension types 1 and 2 are pickles and are refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec.msgpack import Ext

from engine import limits
from engine.messages import NdArray
from engine.peek import Buffer

ITEM_BYTES = {
    "|b1": 1, "|i1": 1, "|u1": 1, "<i2": 2, "<u2": 2, "<i4": 4, "<u4": 4, "<i8": 8, "<u8": 8,
    "<f2": 2, "<f4": 4, "<f8": 8,
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
RAW_BYTES = 3
PICKLES = {1: "pickle", 2: "cloudpickle"}


class RawBytes:
    """Extension type 3. Fits no field but an array's data."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def refuse_or_keep(code: int, data: memoryview) -> RawBytes:
    """msgspec ext_hook. Raises ValueError for every extension type but raw bytes."""
    if code == RAW_BYTES:
        return RawBytes(bytes(data))
    if code in PICKLES:
        raise ValueError(f"extension type {code} ({PICKLES[code]}) is never accepted")
    raise ValueError(f"extension type {code} is not known")


class ArrayReader:
    """One message's arrays. `frames`: the body first, then what follows it."""

    def __init__(self, frames: Sequence[Buffer]) -> None:
        self.frames = frames
        self.used: set[int] = set()

    def dec_hook(self, wanted: type, value: object) -> object:
        if wanted is not NdArray:
            raise NotImplementedError(f"nothing reads {wanted.__name__}")
        return self.array(value)

    def array(self, value: object) -> NdArray:
        """Raises ValueError. `frames` are numbered from the body as 0."""
        dtype, shape, data = _header(value)
        raw = self._data(data)
        expected = prod(shape) * ITEM_BYTES[dtype]
        if len(raw) != expected:
            raise ValueError(f"array of {dtype} {shape} needs {expected} bytes, has {len(raw)}")
        return NdArray(dtype, shape, raw)

    def _data(self, data: object) -> bytes:
        if isinstance(data, RawBytes):
            return data.data
        if type(data) is not int:
            raise ValueError(f"array data must be extension type 3 or a frame number, not {type(data).__name__}")
        if not 1 <= data < len(self.frames):
            raise ValueError(f"array data is in frame {data}, the message has frames 1 to {len(self.frames) - 1}")
        self.used.add(data)
        return bytes(self.frames[data])


def _header(value: object) -> tuple[str, list[int], object]:
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError("an array is [dtype, shape, data]")
    dtype, shape, data = value
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise ValueError(f"array dtype {str(dtype)[:40]!r} is not accepted")
    if not isinstance(shape, list) or len(shape) > limits.MAX_TENSOR_DIMENSIONS:
        raise ValueError(f"an array shape is a list of at most {limits.MAX_TENSOR_DIMENSIONS} sizes")
    if not all(type(size) is int and 0 <= size < 2**40 for size in shape):
        raise ValueError("array sizes must be integers from 0")
    return dtype, shape, data


class ArrayWriter:
    """One message's arrays on their way out: collects the frames that follow the body."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def enc_hook(self, value: object) -> object:
        if not isinstance(value, NdArray):
            raise NotImplementedError(f"{type(value).__name__} cannot travel")
        if not value.shape or len(value.data) < limits.INLINE_ARRAY_BYTES:
            return [value.dtype, value.shape, Ext(RAW_BYTES, bytes(value.data))]
        self.frames.append(value.data)
        return [value.dtype, value.shape, len(self.frames)]
