"""`python -m engine.model.gguf FILE.gguf DIR`: a GGUF file becomes a Hugging Face directory, once.

Enters: a GGUF file of the Llama family. Leaves: config.json, model.safetensors, tokenizer.json, tokenizer_config.json,
generation_config.json, all or nothing: it writes beside DIR and renames. Progress is one JSON line a step on stderr.
Any fault is a ModelError that names the file; the unfinished directory is removed."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from engine.errors import ModelError
from engine.model.gguf_config import Plan, plan_conversion
from engine.model.gguf_file import GGUFFile
from engine.model.gguf_tokenizer import write_tokenizer

Report = Callable[[dict[str, object]], None]
"""Told {"event": ..., "detail": ..., ...} as the work goes on."""
ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_TAGS = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
_CHUNK_ELEMENTS = 1 << 22
_SPARE_BYTES = 64 * 1024**2


def convert(source: str | Path, target: str | Path, report: Report, dtype: str = "bfloat16") -> Path:
    """Writes `target`, which must not exist or be empty. Raises ModelError; then nothing is left behind."""
    source, target = Path(source), Path(target).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ModelError(f"{target}: exists already; give another directory or remove it")
    file = GGUFFile(source)
    plan = plan_conversion(file, dtype)
    size = sum(entry.elements for entry in plan.entries) * ITEM_BYTES[dtype]
    report({"event": "size", "bytes": size, "detail": f"will write {size / 1e6:.0f} MB to {target}"})
    partial = target.parent / f".{target.name}.{os.getpid()}.partial"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_space(target.parent, size)
        _sweep(target)
        partial.mkdir()
        _write_all(file, plan, partial, report)
        os.rename(partial, target)
    except OSError as error:
        raise ModelError(f"{target}: cannot be written ({error.strerror}); free some space or choose another") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    report({"event": "done", "detail": str(target), "path": str(target)})
    return target


def _write_all(file: GGUFFile, plan: Plan, directory: Path, report: Report) -> None:
    write_tokenizer(file, directory)
    (directory / "config.json").write_text(json.dumps(plan.config, indent=2))
    (directory / "generation_config.json").write_text(json.dumps(plan.generation, indent=2))
    with open(directory / "model.safetensors", "wb") as out:
        _write_weights(file, plan, out, report)
        out.flush()
        os.fsync(out.fileno())


def _write_weights(file: GGUFFile, plan: Plan, out: BinaryIO, report: Report) -> None:
    """The safetensors layout: length of the header, header, data in the header's order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for entry in plan.entries:
        end = at + entry.elements * ITEM_BYTES[plan.dtype]
        header[entry.name] = {"dtype": _TAGS[plan.dtype], "shape": list(entry.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    out.write(len(text).to_bytes(8, "little") + text)
    for done in range(len(plan.entries)):
        for values in _rows(file, plan, done):
            out.write(narrow(values, plan.dtype).tobytes())
        if done % 16 == 0 or done + 1 == len(plan.entries):
            detail = f"{done + 1} of {len(plan.entries)} tensors"
            report({"event": "convert", "done": done + 1, "total": len(plan.entries), "detail": detail})


def _rows(file: GGUFFile, plan: Plan, index: int) -> Iterator[np.ndarray]:
    """float32 pieces of one tensor, in order; a tensor whose rows change place comes whole."""
    entry = plan.entries[index]
    tensor = file.tensors[entry.source]
    width = tensor.shape[-1]
    rows = entry.elements // width
    if entry.heads:
        # A bias is one row in the file, and its elements are what the heads own.
        whole = file.data(tensor, 0, rows).reshape(*entry.shape[:1], -1)
        yield whole.reshape(entry.heads, -1, 2, whole.shape[1]).swapaxes(1, 2).reshape(whole.shape)
        return
    step = max(1, _CHUNK_ELEMENTS // width)
    for first in range(0, rows, step):
        yield file.data(tensor, first, min(step, rows - first))


def narrow(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 to the storage type; bfloat16 as its 16 raw bits, rounded to nearest, ties to even."""
    if dtype == "float32":
        return np.ascontiguousarray(values, np.float32)
    if dtype == "float16":
        return values.astype(np.float16)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def _check_space(directory: Path, size: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < size + _SPARE_BYTES:
        raise ModelError(
            f"{directory}: {free / 1e6:.0f} MB free, {(size + _SPARE_BYTES) / 1e6:.0f} MB needed; free some space"
        )


def _sweep(target: Path) -> None:
    """Removes what a killed conversion to the same place left behind."""
    for stale in target.parent.glob(f".{target.name}.*.partial"):
        pid = stale.name.split(".")[-2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(stale, ignore_errors=True)


def json_lines(record: dict[str, object]) -> None:
    print(json.dumps(record), file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m engine.model.gguf", description="Converts a GGUF file into a directory the engine loads."
    )
    parser.add_argument("file", metavar="FILE.gguf", help="a GGUF file of the Llama, Mistral or Qwen2/3 family")
    parser.add_argument("directory", metavar="DIR", help="the directory to make; it must not exist")
    parser.add_argument("--dtype", choices=sorted(ITEM_BYTES), default="bfloat16", help="what the weights are kept in")
    arguments = parser.parse_args(argv)
    # So that the unfinished directory is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        convert(arguments.file, arguments.directory, json_lines, arguments.dtype)
    except ModelError as error:
        json_lines({"event": "failed", "error": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
