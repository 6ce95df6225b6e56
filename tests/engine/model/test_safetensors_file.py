"""Weight files that are missing, cut, padded, crafted or something else: each refused with its name."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.errors import ModelError
from engine.model.safetensors_file import INDEX, read_entries
from tests.support.tiny_model import make_tiny_model

NAME = "model.safetensors"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "model")


def shard(model: Path, count: int = 2) -> None:
    """Replaces the one file by `count` shards and their index."""
    weights = load_file(model / NAME)
    (model / NAME).unlink()
    places = {}
    for number in range(count):
        names = sorted(weights)[number::count]
        file = f"model-{number + 1:05}-of-{count:05}.safetensors"
        save_file({name: weights[name] for name in names}, model / file)
        places.update(dict.fromkeys(names, file))
    (model / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))


def with_header(header: object, data: bytes = b"\0" * 64) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str = "F32", shape: object = (4, 4), offsets: object = (0, 64)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


BAD = {
    "html": b"<!DOCTYPE html><html><body>404</body></html>",
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
    "empty": b"",
    "seven bytes": b"\x07\0\0\0\0\0\0",
    "header 2^60": (2**60).to_bytes(8, "little") + b"{}" + b"\0" * 100,
    "header 0": (0).to_bytes(8, "little") + b"\0" * 100,
    "header one byte too long": (101).to_bytes(8, "little") + b"\0" * 100,
    "bad json": with_header(b"{nope}"),
    "no utf-8": with_header(b'{"\xff": 1}'),
    "deep json": with_header(b"[" * 100_000),
    "a list": with_header([]),
    "entry is text": with_header({"a": "text"}),
    "unknown dtype": with_header({"a": entry(dtype="F7")}),
    "dtype is a list": with_header({"a": entry(dtype=["F32"])}),  # type: ignore[arg-type]
    "negative shape": with_header({"a": entry(shape=(-4, -4))}),
    "shape is text": with_header({"a": entry(shape="4x4")}),
    "boolean offsets": with_header({"a": entry(shape=(), offsets=(False, True))}),
    "shape and offsets differ": with_header({"a": entry(shape=(4, 5))}),
    "huge shape": with_header({"a": entry(shape=(2**40, 2**40))}),
    "overlapping": with_header({"a": entry(), "b": entry(shape=(2, 4), offsets=(32, 64))}),
    "gap": with_header({"a": entry(shape=(2, 4), offsets=(32, 64))}),
    "trailing": with_header({"a": entry()}, b"\0" * 65),
    "short": with_header({"a": entry()}, b"\0" * 63),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_by_name(name: str, model: Path) -> None:
    (model / NAME).write_bytes(BAD[name])
    with pytest.raises(ModelError, match=r"model\.safetensors.*download it again"):
        read_entries(model)


@pytest.mark.parametrize("cut", [1, 4096, 200_000])
def test_a_cut_file_is_refused_with_both_sizes(cut: int, model: Path) -> None:
    size = (model / NAME).stat().st_size
    os.truncate(model / NAME, size - cut)
    with pytest.raises(ModelError, match=f"{size} bytes were expected, it has {size - cut}"):
        read_entries(model)


def test_a_fifo_is_refused_at_once(model: Path) -> None:
    (model / NAME).unlink()
    os.mkfifo(model / NAME)
    with pytest.raises(ModelError, match="not a regular file"):
        read_entries(model)


def test_shards_hold_what_the_single_file_held(model: Path) -> None:
    before = read_entries(model)
    shard(model)
    after = read_entries(model)
    assert {name: item.shape for name, item in before.items()} == {name: item.shape for name, item in after.items()}
    assert len({item.file for item in after.values()}) == 2


def test_a_missing_shard_is_named(model: Path) -> None:
    shard(model)
    (model / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model-00002-of-00002\.safetensors: missing"):
        read_entries(model)


def test_shards_without_their_index_are_refused(model: Path) -> None:
    shard(model)
    (model / INDEX).unlink()
    with pytest.raises(ModelError, match=r"index.*missing.*2"):
        read_entries(model)


@pytest.mark.parametrize("places", [{}, [], {"a": 3}, {"a": "../outside.safetensors"}, {"a": ""}])
def test_a_bad_index_is_refused(places: object, model: Path) -> None:
    shutil.copy(model / NAME, model.parent / "outside.safetensors")
    (model / INDEX).write_text(json.dumps({"weight_map": places}))
    with pytest.raises(ModelError, match="index"):
        read_entries(model)


def test_an_index_that_names_a_tensor_its_shard_lacks_is_refused(model: Path) -> None:
    shard(model)
    index = json.loads((model / INDEX).read_text())
    index["weight_map"]["model.extra"] = "model-00001-of-00002.safetensors"
    (model / INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"model\.extra"):
        read_entries(model)


def test_empty_tensors_are_no_overlap(model: Path) -> None:
    save_file(
        {"a": np.zeros((0, 4), np.float32), "b": np.ones(4, np.float32), "c": np.zeros(0, np.float32)}, model / NAME
    )
    assert read_entries(model)["b"].size_bytes == 16
