"""Safetensors headers, checked against the file before a byte of data is used. No torch.

Enters: a model directory. Leaves: for every tensor its file, type, shape and byte range, all known to lie inside a
regular file. Anything else (cut, padded, an HTML page, a pointer file) is a ModelError with the file's name."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.errors import ModelError
from engine.model.config import read_json

ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "U16": 2,
    "U32": 4,
    "U64": 8,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
}
INDEX = "model.safetensors.index.json"
_MAX_HEADER_BYTES = 100 * 1024**2
_LFS_START = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class Entry:
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    """Byte in the file, not in the data section."""
    size_bytes: int


def read_entries(directory: Path) -> dict[str, Entry]:
    """Every tensor of a single or sharded checkpoint, by name. Raises ModelError."""
    single, index = directory / "model.safetensors", directory / INDEX
    if index.exists():
        return _sharded(directory, index)
    if single.exists():
        return read_header(single)
    shards = sorted(directory.glob("*.safetensors"))
    if len(shards) != 1:
        raise ModelError(f"{index}: missing, and there are {len(shards)} *.safetensors files; download the index too")
    return read_header(shards[0])


def _sharded(directory: Path, index: Path) -> dict[str, Entry]:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ModelError(f"{index}: no weight_map in it; download it again")
    headers: dict[str, dict[str, Entry]] = {}
    entries: dict[str, Entry] = {}
    for name, shard in places.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise ModelError(f"{index}: {name!r} is said to be in {shard!r}, which is not a file name here")
        if shard not in headers:
            if not (directory / shard).exists():
                raise ModelError(f"{directory / shard}: missing, the index names it; download this shard")
            headers[shard] = read_header(directory / shard)
        if name not in headers[shard]:
            raise ModelError(f"{directory / shard}: tensor {name!r} is not in it although the index says so")
        entries[name] = headers[shard][name]
    return entries


def read_header(file: Path) -> dict[str, Entry]:
    """The tensors of one file. Raises ModelError unless the data section is exactly covered by them."""
    size = _regular_size(file)
    with open(file, "rb") as handle:
        start = handle.read(8)
        if size < 8 or start[:1] == b"<" or _LFS_START.startswith(start[:8]):
            raise _broken(file, _what_is_it(start, size))
        header_bytes = int.from_bytes(start, "little")
        if not 2 <= header_bytes <= min(size - 8, _MAX_HEADER_BYTES):
            raise _broken(file, f"its header claims {header_bytes} bytes, the file has {size}")
        text = handle.read(header_bytes)
    try:
        header = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(file, f"its header is not valid JSON ({error})") from None
    if not isinstance(header, dict):
        raise _broken(file, "its header is not a JSON object")
    header.pop("__metadata__", None)
    base = 8 + header_bytes
    entries = {str(name): _entry(file, name, raw, base) for name, raw in header.items()}
    _check_cover(file, entries, base, size)
    return entries


def _entry(file: Path, name: str, raw: object, base: int) -> Entry:
    fields = raw if isinstance(raw, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), _counts(fields.get("shape")), _counts(fields.get("data_offsets"))
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise _broken(file, f"tensor {name!r} has the unknown dtype {dtype!r}")
    if shape is None or offsets is None or len(offsets) != 2:
        raise _broken(file, f"tensor {name!r} has no usable shape or data_offsets")
    expected = ITEM_BYTES[dtype]
    for count in shape:
        expected *= count
    if offsets[1] - offsets[0] != expected:
        raise _broken(
            file, f"tensor {name!r} of shape {shape} needs {expected} bytes, its offsets hold {offsets[1] - offsets[0]}"
        )
    return Entry(file, dtype, tuple(shape), base + offsets[0], expected)


def _counts(value: object) -> list[int] | None:
    if isinstance(value, list) and all(type(item) is int and item >= 0 for item in value):
        return value
    return None


def _check_cover(file: Path, entries: dict[str, Entry], base: int, size: int) -> None:
    end = base
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].size_bytes)):
        if entry.start != end:
            raise _broken(file, f"tensor {name!r} overlaps another or leaves a gap at byte {entry.start}")
        end += entry.size_bytes
    if end > size:
        raise _broken(file, f"it is cut short: {end} bytes were expected, it has {size}")
    if end < size:
        raise _broken(file, f"it has {size} bytes, {size - end} more than its header describes")


def _regular_size(file: Path) -> int:
    """Asked before any open: opening a FIFO would block for ever."""
    try:
        info = os.stat(file)
    except OSError as error:
        raise ModelError(f"{file}: cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(info.st_mode):
        raise ModelError(f"{file}: not a regular file; weights must be plain .safetensors files")
    return info.st_size


def _what_is_it(start: bytes, size: int) -> str:
    if start[:1] == b"<":
        return "it is an HTML page, not weights"
    if size >= 8:
        return "it is a git-lfs pointer, not the weights (run: git lfs pull)"
    return f"it has only {size} bytes"


def _broken(file: Path, reason: str) -> ModelError:
    return ModelError(f"{file}: not usable: {reason}; download it again")
