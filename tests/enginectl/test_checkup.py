from __future__ import annotations

import os
import resource
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from enginectl import checkup
from enginectl.checkup import Finding


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINECTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("ENGINECTL_RUNTIME_DIR", str(tmp_path / "r"))
    monkeypatch.setenv("ENGINECTL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def levels(findings: list[Finding]) -> dict[str, str]:
    return {one.check: one.level for one in findings}


def test_directories_that_are_not_there_yet_are_fine_and_are_not_made(tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    assert set(levels(list(checkup.directories())).values()) == {"ok"}
    assert sorted(tmp_path.iterdir()) == before


def test_a_directory_that_others_may_write_is_named_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r").chmod(0o777)
    found = next(one for one in checkup.directories() if one.level == "fail")
    assert (found.check, found.fix) == ("runtime directory", f"chmod 700 {tmp_path / 'r'}")


def test_a_runtime_directory_with_too_long_a_path_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINECTL_RUNTIME_DIR", str(tmp_path / ("d" * 100)))
    found = next(one for one in checkup.directories() if one.check == "socket paths")
    assert found.level == "fail"
    assert "ENGINECTL_RUNTIME_DIR=" in found.fix


def test_the_interpreter_is_run_and_its_packages_are_named() -> None:
    found = list(checkup.interpreter(sys.executable))
    assert levels(found)["python"] == "ok"
    assert "msgspec" in next(one for one in found if one.check == "packages").found


def test_an_interpreter_that_is_none_or_lacks_packages_fails(tmp_path: Path) -> None:
    assert levels(list(checkup.interpreter(str(tmp_path / "none")))) == {"python": "fail"}
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho version=3.9.1\necho engine=there\necho torch=\n")
    fake.chmod(0o755)
    found = {one.check: one for one in checkup.interpreter(str(fake))}
    assert (found["python"].level, found["packages"].level) == ("fail", "fail")
    assert found["packages"].found == "missing: zmq, msgspec, torch, numpy, safetensors"
    assert "pip install 'enginectl[engine]'" in found["packages"].fix


def test_a_compiler_is_tried_not_only_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = next(checkup.compiler())
    assert (found.level, found.fix) == ("warn", "apt-get install gcc libc6-dev")
    fake = tmp_path / "gcc"
    fake.write_text("#!/bin/sh\nread line\necho 'pthread.h: No such file or directory' >&2\nexit 1\n")
    fake.chmod(0o755)
    assert "pthread.h: No such file" in next(checkup.compiler()).found
    fake.write_text("#!/bin/sh\nread line\n")
    assert next(checkup.compiler()) == Finding("compiler", "ok", str(fake))


@pytest.mark.parametrize(("said", "level"), [("", "ok"), ("99999", "warn"), ("junk", "warn")])
def test_thread_settings_that_cost_speed_are_told(monkeypatch: pytest.MonkeyPatch, said: str, level: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    found = next(checkup.threads())
    assert found.level == level
    assert (found.fix == "unset OMP_NUM_THREADS") is (level == "warn")


def test_a_config_file_with_an_unknown_key_fails(tmp_path: Path) -> None:
    (tmp_path / "enginectl.toml").write_text("[settings]\nmax_modellen = 3\n")
    found = next(checkup.config_files())
    assert found.level == "fail"
    assert "'max_model_len'" in found.found


def test_unfinished_conversions_are_leftovers(tmp_path: Path) -> None:
    assert [one.level for one in checkup.leftovers()] == ["ok"]
    partial = tmp_path / "cache" / "models" / ".tiny.part"
    partial.mkdir(parents=True)
    (partial / "model.safetensors").write_bytes(b"x" * 1000)
    found = next(checkup.leftovers())
    assert (found.level, found.fix) == ("warn", f"rm -r {partial}")


def test_a_full_disk_is_named_by_what_is_kept_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, models = tmp_path / "state-disk", tmp_path / "models-disk"
    for path, setting in ((state, "ENGINECTL_STATE_DIR"), (models, "ENGINECTL_CACHE_DIR")):
        path.mkdir()
        monkeypatch.setenv(setting, str(path))
    kept = os.stat

    def two_disks(path: object, **options: object) -> object:
        return SimpleNamespace(st_dev=int(path == state)) if path in (state, models) else kept(path, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "stat", two_disks)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10 if path == state else 1 << 40))
    of_models, of_state = checkup.disk()
    assert (of_models.level, of_state.level) == ("ok", "warn")
    assert str(state) in of_state.fix and "ENGINECTL_STATE_DIR" in of_state.fix and "CACHE" not in of_state.fix


@pytest.mark.parametrize(("hard", "level"), [(20_000, "ok"), (resource.RLIM_INFINITY, "ok"), (512, "warn")])
def test_open_files_are_judged_by_what_a_supervisor_may_take(
    monkeypatch: pytest.MonkeyPatch, hard: int, level: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, hard))
    found = next(one for one in checkup.limits() if one.check == "open files")
    assert (found.level, bool(found.fix)) == (level, level == "warn")


def test_looking_at_everything_changes_nothing(tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    found = list(checkup.all_findings(sys.executable))
    assert {"disk", "memory", "open files", "shared memory"} <= {one.check for one in found}
    assert all(one.fix for one in found if one.level == "fail")
    assert sorted(tmp_path.rglob("*")) == before
    assert os.getcwd() == str(tmp_path)
