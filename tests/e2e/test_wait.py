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
