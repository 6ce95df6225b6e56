"""Which types and how many cores, from what the machine says of itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from engine.errors import ModelError
from engine.model.device import available_cores, choose_target, cpu_has_bf16


def test_auto_is_what_was_saved() -> None:
    assert choose_target("auto", "bfloat16", "cpu").storage == torch.bfloat16
    assert choose_target("auto", "float32", "cpu").storage == torch.float32
    assert choose_target("float16", "float32", "cpu").compute == torch.float32
    with pytest.raises(ModelError, match="float8"):
        choose_target("float8", "float32", "cpu")


@pytest.mark.parametrize(
    ("flags", "has"),
    [
        ("flags : fpu avx2 avx512f avx512_bf16", True),
        ("flags : fpu avx2", False),
        ("Features : fp asimd bf16", True),
        ("flags : avx512_bf16x", False),
        ("", False),
    ],
)
def test_bf16_instructions_are_read_from_the_flags(flags: str, has: bool, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor : 0\n{flags}\n")
    assert cpu_has_bf16(tmp_path / "cpuinfo") is has
    assert not cpu_has_bf16(tmp_path / "missing")


def test_a_device_that_cannot_be_used_is_refused() -> None:
    for name in ("nonsense", "meta", *(() if torch.cuda.is_available() else ("cuda",))):
        with pytest.raises(ModelError, match=name):
            choose_target("auto", "float32", name)


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("50000 100000", 1),
        ("1 100000", 1),
        ("max 100000", None),
        ("", None),
        ("100000 0", None),
        ("99900000 100000", None),
    ],
)
def test_a_quota_of_the_container_counts(quota: str, cores: int | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert available_cores(tmp_path / "cpu.max") == (cores or len(os.sched_getaffinity(0)))
