"""Every EXAMPLE of every man page is run, in order, against a real engine that computes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ctl import Ctl
from tests.support.examples import Example, examples
from tools.generate import ROOT

pytestmark = pytest.mark.e2e
SOURCES = sorted((ROOT / "man" / "src").glob("*.md"))
BEGINS_WITHOUT_ENGINE = ("enginectl", "start", "exit-status")
REQUEST = """
from enginectl.client import Engine, open_control
from engine.messages import SamplingParams
with Engine(open_control("qwen")) as engine:
    list(engine.generate([3, 4, 5], SamplingParams(max_tokens=1500, ignore_eos=True), request_id="chatcmpl-91c"))
"""


@pytest.fixture
def shell(ctl: Ctl) -> Iterator[Ctl]:
    """The world of the pages: `enginectl` on the PATH, a model in ~/models/qwen, engines that compute nothing."""
    model = ctl.base / "home" / "models" / "qwen"
    model.parent.mkdir(parents=True)
    os.rename(ctl.make_model(), model)
    scripts = ctl.base / "bin"
    scripts.mkdir()
    command = scripts / "enginectl"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m enginectl "$@"\n')
    command.chmod(0o755)
    ctl.env |= {
        "PATH": f"{scripts}:{ctl.env['PATH']}",
        "ENGINECTL_EXECUTOR": "tests.support.paced_executor:PacedExecutor",
        "ENGINECTL_NUM_GPU_BLOCKS": "256",
        "PACED_STEP_MS": "20",
    }
    yield ctl


def run(ctl: Ctl, example: Example) -> None:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", example.line], env=ctl.env, cwd=ctl.base, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == example.exit, f"{example.line} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("source", SOURCES, ids=[path.stem for path in SOURCES])
def test_every_example_runs(shell: Ctl, source: Path) -> None:
    if source.stem not in BEGINS_WITHOUT_ENGINE:
        shell.ok("start", "qwen", "--model", str(shell.base / "home" / "models" / "qwen"))
    elif source.stem == "exit-status":
        shell.ok("start", "qwen", "--model", str(shell.base / "home" / "models" / "qwen"))
        shell.ok("stop", "qwen")
    waiting = None
    if source.stem in ("abort", "requests"):
        waiting = subprocess.Popen([sys.executable, "-c", REQUEST], env=shell.env, stderr=subprocess.DEVNULL)
        shell.wait_running(1, "qwen")
    try:
        for example in examples(source):
            if example.file:
                (shell.base / example.file).write_text(example.line)
            elif not example.not_run:
                run(shell, example)
    finally:
        if waiting is not None:
            waiting.kill()
            waiting.wait()


def test_what_is_not_run_says_why() -> None:
    found = [example for source in SOURCES for example in examples(source)]
    assert len(found) > 30
    assert all(len(example.not_run) > 10 for example in found if example.not_run)
    assert sum(bool(example.not_run) for example in found) <= 3
    assert all("enginectl" in example.line or example.line.startswith("echo") or example.file for example in found)
