"""The programs of examples/ run as they are, on a tiny model: one for each way to an engine from Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.ctl import ROOT, Ctl

pytestmark = pytest.mark.e2e


def run(ctl: Ctl, program: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / program), *words],
        env=ctl.env, cwd=ctl.base, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_here() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {
        "asyncio_stream.py", "attach.py", "inproc.py", "sync.py",
        "demo.py",  # `make demo`, on the default model
    }  # fmt: skip


def test_inproc(ctl: Ctl) -> None:
    said = run(ctl, "inproc.py", str(ctl.make_model()), "the world")
    assert said.startswith("greedy: the world") and "\nseed 7: the world" in said


def test_sync(ctl: Ctl) -> None:
    said = run(ctl, "sync.py", str(ctl.make_model()), "the world")
    for name, tokens in (("short", 8), ("middle", 16), ("long", 24)):
        assert f"{name}: {tokens} tokens, finished by length" in said
    assert "hog:" in said and "in flight:" in said


def test_asyncio(ctl: Ctl) -> None:
    said = run(ctl, "asyncio_stream.py", str(ctl.make_model()), "the world", "a sea")
    assert len([line for line in said.splitlines() if line.startswith(("the world", "a sea"))]) == 2


def test_attach(served: Ctl) -> None:
    said = run(served, "attach.py", "t", "the world").splitlines()
    assert said[0] == "t: idle" and said[1].startswith("the world")
