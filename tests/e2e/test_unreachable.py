"""A supervisor that is there and does not answer: every verb says so with 69 and the one verb that helps, and that one
helps. What was written down earlier is not believed meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginectl.identity import ProcessId, identify, is_alive, is_stopped
from enginectl.record import lock_holder
from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.fault]


def freeze(ctl: Ctl, name: str = "t") -> list[ProcessId]:
    """Stops the supervisor; it and its engine."""
    found = [ProcessId(**ctl.record(name)[key]) for key in ("supervisor", "engine")]
    os.kill(found[0].pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(found[0]), 5.0, "stopped")
    return found


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ctl]:
    """Engine `t` is idle, its supervisor is stopped."""
    ctl = Ctl(tmp_path_factory.mktemp("frozen"))
    try:
        ctl.start("t", executor="null")
        freeze(ctl)
        yield ctl
    finally:
        ctl.close()


def test_looking_reports_and_judging_is_69(frozen: Ctl) -> None:
    assert frozen.ok("ps", "-o", "json").document["items"][0]["state"] == "unreachable"
    page = frozen("status", "t", "--exit-status")
    assert page.code == 69
    assert "is stopped (state T)" in page.out and "next:  enginectl kill t" in page.out
    assert frozen.ok("status", "t", "-p", "state").out == "unreachable\n"
    assert frozen("probe", "t", "--timeout", "300ms").code == 69
    checked = frozen("doctor", "-o", "json")
    assert checked.code == 10
    assert [row["fix"] for row in checked.document["items"] if row["check"] == "supervisor"] == ["enginectl kill t"]


WORDS = (
    "wait t --timeout 2s", "wait t", "start t", "requests t", "events t", "generate -e t x", "call -e t ping",
    "abort -e t x", "drain t", "stop t", "restart t", "pause t", "cordon t", "stacks t", "explain -e t x", "metrics t",
    "top t --once",
)  # fmt: skip


def test_every_verb_ends_with_the_same_verdict(frozen: Ctl) -> None:
    children = [(words, frozen.popen(*words.split())) for words in WORDS]
    for words, child in children:
        out, err = child.communicate(timeout=90)
        assert child.returncode == 69, f"{words}: {child.returncode}\n{out}{err}"
        assert "error[E1411]" in err and "try:   enginectl kill t" in err, f"{words}: {err}"


def test_kill_ends_both_and_the_name_can_start_again(ctl: Ctl) -> None:
    ctl.start("t", executor="null")
    whom = freeze(ctl)
    result = ctl.ok("kill", "t", "--yes")
    assert "did not answer" in result.err
    assert not any(is_alive(who) for who in whom)
    assert ctl("status", "t", "--exit-status").code == 9
    assert ctl.ok("start", "t", "-o", "json").document["changed"] is True
    ctl.ok("stop", "t")


@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_what_is_no_file_in_the_place_of_one_holds_nobody_up(ctl: Ctl, kind: str) -> None:
    ctl.start("t", executor="null")
    whom = freeze(ctl)
    state = ctl.base / "state" / "engines" / "t"
    for name in ("record.json", "last_start.json", "settings.json"):
        (state / name).unlink()
        if kind == "pipe":
            os.mkfifo(state / name, 0o600)
        else:
            (state / name).mkdir()
            (state / name / "kept").touch()
    assert ctl.ok("ps", "-o", "json", timeout_s=20).document["items"][0]["state"] == "unreachable"
    assert ctl("status", "t", "--exit-status", timeout_s=20).code == 69
    assert ctl("requests", "t", timeout_s=20).code == 69
    os.kill(whom[0].pid, signal.SIGCONT)
    wait_until(lambda: all((state / name).is_file() for name in ("record.json", "settings.json")), 15.0, "files")
    assert len(list(state.glob("*.found-*/kept"))) == (2 if kind == "directory" else 0)
    assert ctl.ok("start", "t", "-o", "json").document["changed"] is False
    freeze(ctl)
    shutil.rmtree(ctl.base / "state")
    ctl.ok("kill", "t", "--yes")
    assert not any(is_alive(who) for who in whom)


CODE = """
import os, signal, sys
import enginectl.supervisor.__main__ as supervisor
supervisor.end_lost_engine = lambda paths: os.kill(os.getpid(), signal.SIGSTOP) or 0
sys.exit(supervisor.main(["--name", "t"]))
"""


def test_one_that_stopped_between_its_lock_and_its_first_record_is_found(ctl: Ctl) -> None:
    ctl.start("t", executor="null")
    ctl.ok("stop", "t")
    state = ctl.base / "state" / "engines" / "t"
    (state / "record.json").unlink()
    with subprocess.Popen([sys.executable, "-c", CODE], env=ctl.env, start_new_session=True, cwd="/") as child:
        try:
            wait_until(lambda: lock_holder(state / "lock") == child.pid, 20.0, "its lock")
            wait_until(lambda: is_stopped(identify(child.pid)), 20.0, "its stop")
            assert ctl.ok("ps", "-o", "json").document["items"][0]["state"] == "unreachable"
            for words in ("status t --exit-status", "requests t", "start t", "stop t", "wait t --timeout 1s"):
                result = ctl(*words.split(), timeout_s=40)
                assert result.code == 69, f"{words}: {result}"
            ctl.ok("kill", "t", "--yes")
            assert child.wait(10) == -signal.SIGKILL
        finally:
            child.kill()
    assert ctl.ok("start", "t", "-o", "json").document["changed"] is True


def test_a_lock_that_is_no_file_is_a_named_error(ctl: Ctl, tmp_path: Path) -> None:
    ctl.start("t", executor="null")
    ctl.ok("stop", "t")
    lock = ctl.base / "state" / "engines" / "t" / "start.lock"
    lock.unlink()
    lock.mkdir()
    result = ctl("start", "t", "-o", "json")
    assert (result.code, result.document["id"]) == (2, "E1501")
    assert str(lock) in result.document["message"]
