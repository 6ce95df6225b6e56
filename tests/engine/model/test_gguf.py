"""GGUF conversion: every kind of tensor, every architecture, and files that are crafted or cut."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_torch
from tokenizers import Tokenizer

from engine.errors import ModelError
from engine.model.config import ModelConfig
from engine.model.gguf import convert, narrow
from engine.model.gguf_config import llama3_divisors
from engine.model.gguf_file import GGUFFile
from tests.support.gguf_files import write_gguf
from tests.support.steps import Job, Steps, load
from tests.support.tiny_model import make_tiny_model


def quiet(record: dict[str, object]) -> None:
    """A report nobody reads."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("arch", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("tie", [True, False])
def test_a_converted_model_gives_the_tokens_of_its_origin(arch: str, tie: bool, tmp_path: Path) -> None:
    origin = make_tiny_model(tmp_path / "origin", arch=arch, tie=tie)
    target = convert(write_gguf(origin, tmp_path / "m.gguf"), tmp_path / "target", quiet, "float32")
    before, after = load_file(origin / "model.safetensors"), load_file(target / "model.safetensors")
    assert before.keys() == after.keys()
    for name, values in before.items():
        np.testing.assert_array_equal(values, after[name], err_msg=name)
    jobs = [Job([5, 9, 30, 41], count=12), Job(list(range(3, 80)), count=12)]
    outputs = [
        Steps(load(model, dtype="float32")).run([Job(job.prompt, count=12) for job in jobs])
        for model in (origin, target)
    ]
    assert outputs[0] == outputs[1]
    assert ModelConfig.from_dir(target).eos_token_ids == (2,)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_every_kind_is_dequantised(kind: str, tiny: Path, tmp_path: Path) -> None:
    target = convert(write_gguf(tiny, tmp_path / "m.gguf", kind), tmp_path / "target", quiet, "float32")
    quantisation = gguf.GGMLQuantizationType[kind]
    for name, values in load_file(tiny / "model.safetensors").items():
        if values.ndim == 2 and not name.endswith(("q_proj.weight", "k_proj.weight")):
            expected = gguf.quants.dequantize(gguf.quants.quantize(values, quantisation), quantisation)
            np.testing.assert_array_equal(load_file(target / "model.safetensors")[name], expected, err_msg=name)


def test_k_quants_are_dequantised(tmp_path: Path) -> None:
    """The package writes no Q6_K, so its blocks are random bytes; what matters is that they are read as gguf does."""
    origin = make_tiny_model(tmp_path / "origin", hidden=256, intermediate=256, vocab=300, layers=1)
    file = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    raw = np.random.default_rng(0).integers(0, 100, (4, 210), np.uint8)
    writer.add_tensor("some.weight", raw, raw_dtype=gguf.GGMLQuantizationType.Q6_K)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    read = GGUFFile(file)
    got = np.concatenate([read.data(read.tensors["some.weight"], first, 2) for first in (0, 2)])
    np.testing.assert_array_equal(got, gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q6_K))
    assert origin.exists()


def test_bfloat16_is_rounded_to_nearest_even(tiny: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**32, 100_000, np.uint32).view(np.float32)
    values = np.concatenate((values, np.array([1.00390625, 1.01171875, np.inf, -np.inf, np.nan, 0, -0.0], np.float32)))
    expected = torch.from_numpy(values).to(torch.bfloat16)
    got = torch.from_numpy(narrow(values, "bfloat16").view(np.int16)).view(torch.bfloat16)
    assert torch.equal(got.isnan(), expected.isnan())
    numbers = ~expected.isnan()
    assert torch.equal(got.view(torch.int16)[numbers], expected.view(torch.int16)[numbers])
    target = convert(write_gguf(tiny, tmp_path / "m.gguf"), tmp_path / "target", quiet)
    for name, stored in load_torch(target / "model.safetensors").items():
        assert torch.equal(stored, load_torch(tiny / "model.safetensors")[name].to(torch.bfloat16)), name


def test_the_tokenizer_is_the_same(tiny: Path, tmp_path: Path) -> None:
    target = convert(write_gguf(tiny, tmp_path / "m.gguf", pre="gpt-2"), tmp_path / "target", quiet)
    before, after = (Tokenizer.from_file(str(path / "tokenizer.json")) for path in (tiny, target))
    for text in ("hello the world", "<|im_start|>user\nhé 123<|im_end|>", "  a\t\n b", "👋"):
        assert before.encode(text).ids == after.encode(text).ids
        assert after.decode(after.encode(text).ids) == before.decode(before.encode(text).ids)
    settings = json.loads((target / "tokenizer_config.json").read_text())
    assert settings["chat_template"] == "{{ messages[0]['content'] }}"
    assert (settings["bos_token"], settings["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert json.loads((target / "generation_config.json").read_text())["eos_token_id"] == 2


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "ab 123", ["ab", "Ġ", "1", "2", "3"]),
        ("gpt-2", "ab 123", ["ab", "Ġ123"]),
        ("llama-bpe", "ab1234 5", ["ab", "123", "4", "Ġ", "5"]),
        ("qwen2", "ab12", ["ab", "1", "2"]),
        ("tekken", "abCD12", ["ab", "CD", "1", "2"]),
    ],
)
def test_pre_tokenizers_cut_as_they_should(pre: str, text: str, pieces: list[str], tiny: Path, tmp_path: Path) -> None:
    target = convert(write_gguf(tiny, tmp_path / "m.gguf", pre=pre), tmp_path / "target", quiet)
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    assert [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] == pieces


@pytest.mark.parametrize(("add_bos", "ids"), [(True, [1]), (False, [])])
def test_add_bos_is_kept(add_bos: bool, ids: list[int], tiny: Path, tmp_path: Path) -> None:
    file = write_gguf(tiny, tmp_path / "m.gguf", tokenizer__ggml__add_bos_token=add_bos)
    target = convert(file, tmp_path / "target", quiet)
    assert Tokenizer.from_file(str(target / "tokenizer.json")).encode("").ids == ids


def test_the_end_of_a_turn_stops_too(tiny: Path, tmp_path: Path) -> None:
    file = write_gguf(tiny, tmp_path / "m.gguf", tokenizer__ggml__eot_token_id=0)
    assert ModelConfig.from_dir(convert(file, tmp_path / "target", quiet)).eos_token_ids == (2, 0)


def test_llama3_rope_factors_are_found_again(tmp_path: Path) -> None:
    origin = make_tiny_model(tmp_path / "origin", hidden=256)
    factors = llama3_divisors(64, 10000.0, 32.0, 1.0, 4.0, 8192).astype(np.float32)
    file = tmp_path / "m.gguf"
    write = gguf.GGUFWriter.write_header_to_file
    with pytest.MonkeyPatch.context() as patch:

        def with_factors(writer: gguf.GGUFWriter, *rest: object) -> None:
            writer.add_tensor("rope_freqs.weight", factors)
            write(writer, *rest)

        patch.setattr(gguf.GGUFWriter, "write_header_to_file", with_factors)
        write_gguf(origin, file)
    config = ModelConfig.from_dir(convert(file, tmp_path / "target", quiet))
    assert config.rope_scaling is not None
    assert config.rope_scaling.factor == 32.0
    assert config.rope_scaling.original_max_position_embeddings == 8192


# ---------------------------------------------------------------- files that are not what they should be


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def tensor(name: str, shape: list[int], kind: int = 0, offset: int = 0, dims: int | None = None) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape) if dims is None else dims, *shape, kind, offset)


CRAFTED = {
    "html": b"<!DOCTYPE html><html></html>" * 10,
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "empty": b"",
    "magic only": b"GGUF",
    "version 1": header(version=1),
    "big endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "tensor count": header(tensors=2**62) + b"x" * 100,
    "key count": header(keys=2**62) + b"x" * 100,
    "dimension count": header(1) + tensor("a", [2, 2], dims=2**31),
    "no dimension": header(1) + tensor("a", [], dims=0),
    "product overflow": header(1) + tensor("a", [2**33, 2**33, 2**33]) + b"\0" * 64,
    "zero size": header(1) + tensor("a", [0, 4]) + b"\0" * 64,
    "larger than the file": header(1) + tensor("a", [1000, 1000]) + b"\0" * 64,
    "odd block": header(1) + tensor("a", [33], kind=8) + b"\0" * 64,
    "unknown type": header(1) + tensor("a", [4], kind=250) + b"\0" * 64,
    "offset out of the file": header(1) + tensor("a", [4], offset=2**40) + b"\0" * 64,
    "overlap": header(2) + tensor("a", [8]) + tensor("b", [8], offset=16) + b"\0" * 128,
    "same name": header(2) + tensor("a", [4]) + tensor("a", [4], offset=32) + b"\0" * 128,
    "empty key": header(keys=1) + text("") + struct.pack("<II", 4, 1) + b"\0" * 32,
    "key length": header(keys=1) + struct.pack("<Q", 2**63) + b"\0" * 64,
    "key is no text": header(keys=1) + struct.pack("<Q", 2) + b"\xff\xfe" + struct.pack("<II", 4, 1) + b"\0" * 32,
    "value type": header(keys=1) + text("a") + struct.pack("<I", 99) + b"\0" * 32,
    "element type": header(keys=1) + text("a") + struct.pack("<IIQ", 9, 9, 2) + b"\0" * 32,
    "array count": header(keys=1) + text("a") + struct.pack("<IIQ", 9, 4, 2**61) + b"\0" * 64,
    "string count": header(keys=1) + text("a") + struct.pack("<IIQ", 9, 8, 2**61) + b"\0" * 64,
    "same key": header(keys=2) + (text("a") + struct.pack("<II", 4, 1)) * 2 + b"\0" * 32,
    "alignment": header(keys=1) + text("general.alignment") + struct.pack("<II", 4, 0) + b"\0" * 32,
    "architecture is a number": header(keys=1) + text("general.architecture") + struct.pack("<II", 4, 7) + b"\0" * 32,
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_file_is_refused_by_name(name: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(CRAFTED[name])
    with pytest.raises(ModelError, match=r"bad\.gguf"):
        convert(file, tmp_path / "target", quiet)
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.gguf"]


def test_crafted_counts_allocate_nothing(tmp_path: Path) -> None:
    """All of them in a process that may only have a little memory more than numpy and gguf take."""
    for index, content in enumerate(CRAFTED.values()):
        (tmp_path / f"{index}.gguf").write_bytes(content)
    program = (
        "import resource, sys, pathlib\n"
        "from engine.model.gguf import convert\nfrom engine.errors import ModelError\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 64 * 2**20, used + 64 * 2**20))\n"
        "refused = 0\n"
        "for file in pathlib.Path(sys.argv[1]).glob('*.gguf'):\n"
        "    try: convert(file, file.with_suffix(''), print)\n"
        "    except ModelError: refused += 1\n"
        "print(refused)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{len(CRAFTED)}\n", done.stderr


def test_a_file_cut_anywhere_is_refused(tiny: Path, tmp_path: Path) -> None:
    whole = write_gguf(tiny, tmp_path / "whole.gguf", "Q4_0").read_bytes()
    places = random.Random(3)
    cuts = [places.randrange(len(whole)) for _ in range(60)] + [places.randrange(8000) for _ in range(40)]
    file = tmp_path / "cut.gguf"
    for cut in [*cuts, len(whole) - 1]:
        file.write_bytes(whole[:cut])
        with pytest.raises(ModelError, match=r"cut\.gguf"):
            convert(file, tmp_path / "target", quiet)
    assert not (tmp_path / "target").exists()


def test_bytes_changed_anywhere_are_refused_or_harmless(tiny: Path, tmp_path: Path) -> None:
    whole = bytearray(write_gguf(tiny, tmp_path / "whole.gguf", "Q4_0").read_bytes())
    places = random.Random(4)
    file = tmp_path / "changed.gguf"
    refused = 0
    for turn in range(100):
        changed = bytearray(whole)
        for _ in range(4):
            changed[places.randrange(9000)] = places.randrange(256)
        file.write_bytes(changed)
        try:
            convert(file, tmp_path / f"t{turn}", quiet)
        except ModelError:
            refused += 1
    assert refused > 0
    assert not list(tmp_path.glob(".*"))


def test_what_is_no_plain_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.gguf")
    for name in ("fifo.gguf", "missing.gguf", ""):
        with pytest.raises(ModelError):
            convert(tmp_path / name, tmp_path / "target", quiet)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"pre": "unheard-of"}, "unheard-of"),
        ({"llama__expert_count": 8}, "mixture"),
        ({"llama__rope__scaling__type": "yarn"}, "yarn"),
        ({"llama__rope__scaling__factor": 4}, "linear rope scaling"),
        ({"llama__rope__scale_linear": 8}, "linear rope scaling"),
        ({"pre": "default"}, "default"),
        ({"pre": None}, "old converter"),
    ],
)
def test_what_is_not_supported_is_refused(change: dict[str, object], match: str, tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=match):
        convert(write_gguf(tiny, tmp_path / "m.gguf", **change), tmp_path / "target", quiet)  # type: ignore[arg-type]
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["blk.0.exp_probs_b.weight", "blk.0.post_attention_norm.weight"], r"'blk\.0\.exp_probs_b\.weight' and 1 more"),
        (["blk.0.ffn_up.bias"], r"'blk\.0\.ffn_up\.bias'"),
    ],
)
def test_a_tensor_without_a_place_in_the_model_is_refused(
    names: list[str], match: str, tiny: Path, tmp_path: Path
) -> None:
    write = gguf.GGUFWriter.write_header_to_file
    with pytest.MonkeyPatch.context() as patch:

        def with_more(writer: gguf.GGUFWriter, *rest: object) -> None:
            for name in names:
                writer.add_tensor(name, np.zeros(4, np.float32))
            write(writer, *rest)

        patch.setattr(gguf.GGUFWriter, "write_header_to_file", with_more)
        write_gguf(tiny, tmp_path / "m.gguf")
    with pytest.raises(ModelError, match=f"{match} has no place"):
        convert(tmp_path / "m.gguf", tmp_path / "target", quiet)


def test_a_place_that_cannot_be_written_is_said(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ModelError, match="cannot be written"):
        convert(write_gguf(tiny, tmp_path / "m.gguf"), tmp_path / "file" / "target", quiet)


def test_a_directory_that_exists_is_left_alone(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "mine.txt").write_text("mine")
    with pytest.raises(ModelError, match="exists"):
        convert(write_gguf(tiny, tmp_path / "m.gguf"), tmp_path / "target", quiet)
    assert [entry.name for entry in (tmp_path / "target").iterdir()] == ["mine.txt"]


def test_a_disk_without_room_is_said_before_writing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ModelError, match="1 MB free"):
        convert(write_gguf(tiny, tmp_path / "m.gguf"), tmp_path / "target", events.append)
    assert [event["event"] for event in events] == ["size"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["m.gguf"]


def test_the_command_reports_in_json_lines_and_sweeps(tiny: Path, tmp_path: Path) -> None:
    file = write_gguf(tiny, tmp_path / "m.gguf")
    stale = tmp_path / f".target.{2**22 + 1}.partial"
    stale.mkdir()
    command = [sys.executable, "-m", "engine.model.gguf", str(file), str(tmp_path / "target")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 0
    assert events[0]["event"] == "size"
    assert events[0]["bytes"] > 100_000
    assert events[-1] == {"event": "done", "detail": str(tmp_path / "target"), "path": str(tmp_path / "target")}
    assert not stale.exists()
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert again.returncode == 1
    assert "exists" in json.loads(again.stderr.splitlines()[-1])["error"]
