"""A wheel is built, and what it puts beside the packages is listed. Offline."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.generate import ROOT

pytestmark = pytest.mark.e2e


def test_the_wheel_has_the_man_pages_and_the_completions(tmp_path: Path) -> None:
    for name in ("hatchling", "trove_classifiers"):
        pytest.importorskip(name, reason=f"{name}, with which the wheel is built, is not installed")
    source = tmp_path / "source"
    keep = ("engine", "enginectl", "completions", "man")
    for name in keep:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    code = f"from hatchling.build import build_wheel; print(build_wheel({str(tmp_path)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        shared = {name.partition(".data/data/")[2] for name in wheel.namelist() if ".data/data/" in name}
        packages = {name.split("/")[0] for name in wheel.namelist() if ".dist-info" not in name and ".data" not in name}
    pages = {f"share/man/man{path.suffix[1:]}/{path.name}" for path in (ROOT / "man").glob("*.[0-9]")}
    assert shared == pages | {
        "share/bash-completion/completions/enginectl",
        "share/zsh/site-functions/_enginectl",
        "share/fish/vendor_completions.d/enginectl.fish",
    }
    assert packages == {"engine", "enginectl"}
