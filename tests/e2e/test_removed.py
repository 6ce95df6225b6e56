"""Files and directories of a living engine are removed, or cannot be written: it stays one engine, is found again, and
looking at it needs no write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from enginectl.identity import is_alive
from tests.support.ctl import Ctl, Result
from tests.support.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.fault]


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ctl]:
    ctl = Ctl(tmp_path_factory.mktemp("living"))
    try:
        ctl.start("t", executor="null")
        yield ctl
    finally:
        ctl.close()


def of_engine(name: str) -> Callable[[Ctl], Path]:
    return lambda ctl: ctl.base / "state" / "engines" / "t" / name


REMOVED: dict[str, tuple[Callable[[Ctl], Path], ...]] = {
    "lock": (of_engine("lock"),),
    "record": (of_engine("record.json"),),
    "settings": (of_engine("settings.json"),),
    "lock and record": (of_engine("lock"), of_engine("record.json")),
    "name": (of_engine(""),),
    "state": (lambda ctl: ctl.base / "state",),
    "runtime": (lambda ctl: ctl.runtime / "r",),
    "sockets": (lambda ctl: ctl.runtime / "r" / "t" / "control.sock",),
    "everything": (lambda ctl: ctl.base / "state", lambda ctl: ctl.runtime / "r"),
}


def identity(ctl: Ctl) -> tuple[str, int]:
    view: dict[str, Any] = ctl.ok("status", "t", "-o", "json").document
    assert view["state"] == "idle"
    return view["instance"], view["supervisor"]["pid"]


@pytest.mark.parametrize("what", list(REMOVED))
def test_a_start_finds_the_one_that_lives_and_its_files_come_back(living: Ctl, what: str) -> None:
    before = identity(living)
    paths = [path(living) for path in REMOVED[what]]
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = living.ok("start", "t", *how(living), "-o", "json").document
    assert (again["changed"], again["instance"], again["supervisor"]["pid"]) == (False, *before)
    wait_until(lambda: all(path.exists() for path in paths), 10.0, "files")
    wait_until(lambda: of_engine("record.json")(living).exists() and of_engine("lock")(living).exists(), 10.0, "all")
    assert identity(living) == before
    assert [item["state"] for item in living.ok("ps", "-o", "json").document["items"]] == ["idle"]
    other = living("start", "t", *how(living), "--set", "max_num_seqs=3")
    assert (other.code, "max_num_seqs" in other.err) == (7, True)


def how(ctl: Ctl) -> list[str]:
    return ["--model", str(ctl.model), "--set", "executor=null", "--set", "num_gpu_blocks=512"]


def test_an_engine_whose_state_was_removed_can_be_stopped(ctl: Ctl) -> None:
    ctl.start("t", executor="null")
    whom = ctl.processes()
    shutil.rmtree(ctl.base / "state")
    stopped = ctl.ok("stop", "t", "-o", "json").document
    assert (stopped["changed"], stopped["state"]) == (True, "exited")
    assert len(whom) == 2
    assert not any(is_alive(who) for who in whom)
    assert ctl("status", "t", "--exit-status").code == 3


def unshare() -> list[str]:
    return ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]


def can_mount() -> bool:
    script = "mount -t tmpfs none /mnt"
    try:
        return subprocess.run([*unshare(), "sh", "-c", script], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


LOOKS = (
    "ps", "status t", "requests t", "logs t -n 1", "top t --once", "events t", "probe t", "wait t --timeout 5s",
    "call -e t is_sleeping", "generate -e t 5 --ids --max-tokens 2", "cordon t", "uncordon t", "stacks t", "start t",
    "drain t --grace 5s",
)  # fmt: skip


@pytest.mark.skipif(not can_mount(), reason="mounting is not permitted here")
@pytest.mark.parametrize("place", ["state", "runtime"])
def test_only_a_start_needs_to_write(ctl: Ctl, place: str) -> None:
    ctl.start("t", executor="null")
    folder = ctl.base / "state" if place == "state" else ctl.runtime / "r"

    def run(words: str) -> Result:
        """In a world where that directory is mounted read-only."""
        script = (
            f'mount --bind {folder} {folder} && mount -o remount,bind,ro {folder} && exec "$0" -m enginectl {words}'
        )
        command = [*unshare(), "sh", "-c", script, sys.executable]
        done = subprocess.run(command, env=ctl.env, cwd=ctl.base, capture_output=True, text=True, check=False)
        return Result(done.returncode, done.stdout, done.stderr)

    new = f"start new --model {ctl.model} --set executor=null -o json"
    for words in (new, *LOOKS):
        result = run(words)
        refused = words == new or (place == "state" and words == "start t")
        assert result.code == (2 if refused else 0), f"{words}: {result}"
        assert ("mounted read-only" in result.err) == refused, words
        if words == new:
            assert result.document["id"] == "E1501"
