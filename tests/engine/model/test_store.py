"""The list of stored models: good ones, broken ones, unfinished ones."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.model import store
from engine.model.store import list_models, make_shared_parents, models_root
from enginectl.dirs import state_root
from enginectl.models import models_root as cli_models_root
from tests.support.tiny_model import make_tiny_model


def test_models_are_listed_and_broken_ones_say_why(tmp_path: Path) -> None:
    good = make_tiny_model(tmp_path / "models" / "good")
    make_tiny_model(tmp_path / "models" / "broken").joinpath("config.json").write_text("{")
    huge = make_tiny_model(tmp_path / "models" / "huge") / "config.json"
    huge.write_text(json.dumps(json.loads(huge.read_text()) | {"rope_theta": 10**400}))
    (tmp_path / "models" / ".half.123.partial").mkdir()
    command = [sys.executable, "-m", "engine.model.store"]
    environment = {**os.environ, "ENGINECTL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=True)
    broken, listed, too_large = (json.loads(line) for line in done.stdout.splitlines())
    assert (listed["name"], listed["path"], listed["dtype"]) == ("good", str(good), "float32")
    assert listed["size"] == sum(file.stat().st_size for file in good.iterdir())
    assert broken["name"] == "broken"
    assert "config.json" in broken["problem"]
    assert too_large["name"] == "huge" and "rope_theta is 1000" in too_large["problem"]


def test_no_store_is_an_empty_list(tmp_path: Path) -> None:
    assert list_models(tmp_path / "none") == []
    assert models_root().name == "models"


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """No place is set, and the system does not know this user."""
    for name in ("ENGINECTL_CACHE_DIR", "ENGINECTL_STATE_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)


IN_TMP = Path(f"/tmp/enginectl-{os.geteuid()}")


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("home", ["", "/", "/nonexistent"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_user_without_a_home_has_models_and_state_in_tmp(
    home: str, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", home)
    if is_known:
        monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir="/nonexistent"))
    assert models_root() == cli_models_root() == IN_TMP / "cache" / "models"
    assert state_root() == IN_TMP / "state"


@pytest.mark.usefixtures("unset")
def test_a_home_is_that_of_the_environment_or_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert models_root() == cli_models_root() == tmp_path / ".cache" / "enginectl" / "models"
    monkeypatch.setenv("HOME", "/")
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir=str(tmp_path)))
    assert models_root() == cli_models_root() == tmp_path / ".cache" / "enginectl" / "models"
    assert state_root() == tmp_path / ".local" / "state" / "enginectl"
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert models_root() == cli_models_root() == Path("/elsewhere/enginectl/models")


def test_directories_in_tmp_are_closed_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SHARED", tmp_path)
    root = tmp_path / f"enginectl-{os.geteuid()}"
    before = os.umask(0o002)
    try:
        make_shared_parents(root / "cache" / "models")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (root, root / "cache")] == [0o700, 0o700]
    assert not (root / "cache" / "models").exists()
    root.chmod(0o770)
    with pytest.raises(PermissionError, match=f"others may write to {root}:"):
        make_shared_parents(root / "cache" / "models")
