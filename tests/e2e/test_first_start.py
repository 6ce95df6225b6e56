"""The first start on an empty cache: code is compiled beside the engine that serves; what is said, what is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.model.device import cpu_has_bf16
from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
COMPILER = '#!/bin/sh\necho half > "$TMPDIR/ccXYZ.s"\nexec sleep 100\n'
"""As they do: temporary files where TMPDIR says, for as long as they run."""


@pytest.fixture
def ctl(tmp_path: Path) -> Iterator[Ctl]:
    command = Ctl(tmp_path, TMPDIR=str(tmp_path / "tmp"), PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin")
    for name in ("bin", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "cc").write_text(COMPILER)
    (tmp_path / "bin" / "cc").chmod(0o700)
    yield command
    command.close()


def start(ctl: Ctl) -> str:
    """What it said; its compiler has begun."""
    settings = ("--set", "dtype=bfloat16", "--set", "num_gpu_blocks=64", "--timeout", "60s")
    said = ctl.ok("start", "t", "--model", str(ctl.make_model()), *settings).err
    wait_until(lambda: len(halves(ctl)) == 1, 20.0, "the compiler")
    return said


def halves(ctl: Ctl) -> list[Path]:
    """The files that a build has under way."""
    return sorted((ctl.base / "cache" / "native").rglob("*.s"))


def left(ctl: Ctl) -> list[Path]:
    return [*(ctl.base / "cache" / "native").iterdir(), *(ctl.base / "tmp").iterdir()]


def test_a_stop_during_the_compilation_leaves_nothing(ctl: Ctl) -> None:
    said = start(ctl)
    until = "as float32 (until kernels are compiled)"
    assert (until in said) is not cpu_has_bf16()
    ctl.ok("stop", "t", "--yes")
    assert left(ctl) == []


def test_what_a_kill_during_the_compilation_leaves_goes_at_the_next_start(ctl: Ctl) -> None:
    start(ctl)
    (killed,) = halves(ctl)
    ctl.ok("kill", "t", "--yes")
    assert killed.exists()
    start(ctl)
    assert not killed.parent.exists()
    ctl.ok("stop", "t", "--yes")
    assert left(ctl) == []


def test_without_a_compiler_the_start_says_so(ctl: Ctl) -> None:
    said = ctl.ok("start", "t", "--model", str(ctl.make_model()), "--set", "dtype=bfloat16", PATH="/nowhere").err
    why = "as float32 (no C compiler on PATH (cc, gcc, clang))"
    assert (why in said) is not cpu_has_bf16()
    assert "no C compiler on PATH" in ctl.ok("logs", "t").out
    ctl.ok("stop", "t")
