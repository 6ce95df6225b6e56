from __future__ import annotations

import os
import signal

import pytest

from tests.support.ctl import PACED, Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e


def test_conditions_hold_together(served: Ctl) -> None:
    document = served.ok("wait", "t", "--for", "idle", "--for", "kv<0.5", "-o", "json").document
    assert document["for"] == ["idle", "kv<0.5"]
    late = served("wait", "t", "--for", "ready", "--for", "running>5", "--timeout", "0.5s")
    assert late.code == 124
    assert "running>5" in late.err
    assert served("wait", "t", "--for", "redy").code == 2
    assert served("wait", "nobody").code == 4


def test_what_died_cannot_become_ready(ctl: Ctl) -> None:
    ctl.make_model()
    ctl.ok("start", "t", "--model", str(ctl.model), "--set", f"executor={PACED}", "-d", PACED_LOAD_S="60")
    child = ctl.popen("wait", "t", "--for", "ready", "--timeout", "2m")
    wait_until(lambda: (ctl.record().get("engine") or {}).get("pid"), 20.0, "engine pid")
    wait_until(lambda: "load weights" in ctl("status", "t").out, 20.0, "loading")
    os.kill(ctl.record()["engine"]["pid"], signal.SIGSEGV)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 9
    assert "error[E1410]: 't' cannot become ready: died in phase 'load weights' (signal 11 SEGV)" in err
    assert ctl("wait", "t", "--for", "ready").code == 9
    ctl.ok("wait", "t", "--for", "stopped")


def test_stopped_is_reached_when_it_stops(ctl: Ctl) -> None:
    ctl.start("t")
    child = ctl.popen("wait", "t", "--for", "stopped", "--timeout", "60s", "-o", "json")
    ctl.ok("stop", "t")
    assert child.wait(20) == 0


def test_what_can_no_longer_be_ends_every_wait_at_once_but_the_one_for_the_end(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="10")
    request = ctl.generate()
    ctl.wait_running(1)
    words = (["idle"], ["kv<0.001"], ["running>5", "waiting>5"], ["stopped"])
    waits = [ctl.popen("wait", "t", "--timeout", "5m", *(f"--for={word}" for word in one)) for one in words]
    for child in waits:
        wait_until(lambda child=child: threads(child.pid) > 1, 20.0, "its connection")  # type: ignore[misc]
    os.kill(ctl.record()["engine"]["pid"], signal.SIGKILL)
    ended = [(child.communicate(timeout=30), child.returncode) for child in waits]
    assert [code for _, code in ended] == [9, 9, 9, 0], ended
    for one, ((_, err), _) in zip(words[:-1], ended[:-1], strict=True):
        assert f"error[E1410]: 't' cannot become {one[0]}: died" in err and "signal 9 KILL" in err
    assert request.wait(20) == 9


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def test_a_drain_makes_ready_impossible_when_it_has_ended(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="10")
    request = ctl.generate(tokens=200)
    ctl.wait_running(1)
    child = ctl.popen("wait", "t", "--for", "running>5", "--timeout", "5m")
    wait_until(lambda: threads(child.pid) > 1, 20.0, "its connection")
    ctl.ok("drain", "t")
    _, err = child.communicate(timeout=30)
    assert (child.returncode, "cannot become running>5: " in err) == (9, True), err
    assert request.wait(20) == 0


def test_one_that_is_started_again_by_its_policy_can_become_ready(ctl: Ctl) -> None:
    ctl.start("t", "--restart", "always")
    before = ctl.record()["engine"]["pid"]
    child = ctl.popen("wait", "t", "--for", "running>=1", "--timeout", "60s")
    wait_until(lambda: threads(child.pid) > 1, 20.0, "its connection")
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: (ctl.record().get("engine") or {}).get("pid") not in (None, before), 30.0, "its next life")
    ctl.ok("wait", "t", "--for", "ready", "--timeout", "60s")
    request = ctl.generate()
    assert child.wait(30) == 0
    ctl.ok("abort", "--all", "--yes")
    request.wait(20)
