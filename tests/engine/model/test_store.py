"""The list of stored models: good ones, broken ones, unfinished ones."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from engine.model.store import list_models, models_root
from enginectl.models import models_root as cli_models_root
from tests.support.tiny_model import make_tiny_model


def test_models_are_listed_and_broken_ones_say_why(tmp_path: Path) -> None:
    good = make_tiny_model(tmp_path / "models" / "good")
    make_tiny_model(tmp_path / "models" / "broken").joinpath("config.json").write_text("{")
    (tmp_path / "models" / ".half.123.partial").mkdir()
    command = [sys.executable, "-m", "engine.model.store"]
    environment = {**os.environ, "ENGINECTL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=True)
    broken, listed = (json.loads(line) for line in done.stdout.splitlines())
    assert (listed["name"], listed["path"], listed["dtype"]) == ("good", str(good), "float32")
    assert listed["size"] == sum(file.stat().st_size for file in good.iterdir())
    assert broken["name"] == "broken"
    assert "config.json" in broken["problem"]


def test_no_store_is_an_empty_list(tmp_path: Path) -> None:
    assert list_models(tmp_path / "none") == []
    assert models_root().name == "models"


def test_a_user_without_a_home_has_its_models_in_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENGINECTL_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert models_root() == cli_models_root() == Path(f"/tmp/enginectl-{os.geteuid()}/cache/models")
    monkeypatch.setenv("HOME", "/home/anna")
    assert models_root() == cli_models_root() == Path("/home/anna/.cache/enginectl/models")
