from __future__ import annotations

import os
import signal

import pytest

from enginectl.identity import is_alive
from tests.support.ctl import Ctl, stopped_engine
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e


def test_stop_says_each_stage_and_leaves_nothing(ctl: Ctl) -> None:
    ctl.start("t")
    before = ctl.processes()
    result = ctl.ok("stop", "t")
    assert result.out.startswith("t  stopped in ")
    assert "gone" in result.err
    assert not any(is_alive(who) for who in before)
    assert ctl.ok("stop", "t", "-o", "json").document["changed"] is False
    assert ctl("status", "t", "--exit-status").code == 3
    assert ctl("stop", "nobody").code == 4


def test_requests_in_flight_need_yes(ctl: Ctl) -> None:
    ctl.start("t")
    child = ctl.generate()
    ctl.wait_running(1)
    refused = ctl("stop", "t")
    assert (refused.code, "1 request" in refused.err) == (6, True)
    document = ctl.ok("stop", "t", "--yes", "--grace", "0s", "-o", "json").document
    assert (document["changed"], document["state"], document["aborted"]) == (True, "exited", 1)
    assert child.wait(20) == 1
    assert "1 request by the stop" in ctl.ok("status", "t").out


def test_all_stops_each(ctl: Ctl) -> None:
    ctl.start("a")
    ctl.start("b")
    both = ctl("status")
    assert (both.code, "a, b" in both.err) == (2, True)
    stopped = ctl.ok("stop", "--all", "-o", "json")
    assert [item["name"] for item in stopped.document["items"]] == ["a", "b"]
    assert {line.split()[0] for line in stopped.err.splitlines()} == {"a", "b"}
    assert ctl("status", "a", "-p", "state").out == "exited\n"


def test_a_stop_that_is_killed_still_stops_the_engine(ctl: Ctl) -> None:
    ctl.start("t")
    before = ctl.processes()
    child = ctl.popen("stop", "t")
    wait_until(lambda: ctl("status", "t", "-p", "state").out != "idle\n", 20.0, "stopping")
    child.kill()
    wait_until(lambda: not any(is_alive(who) for who in before), 20.0, "gone")


def test_kill_needs_yes_and_names_the_signal(ctl: Ctl) -> None:
    ctl.start("t")
    assert ctl("kill", "t").code == 6
    assert ctl.ok("kill", "t", "--yes").out == "t  killed, signal 9 KILL\n"
    assert ctl.ok("kill", "t", "--yes", "-o", "json").document["changed"] is False


def test_restart_has_the_same_settings(ctl: Ctl) -> None:
    ctl.start("t", "--set", "max_num_seqs=9")
    before = ctl.ok("status", "t", "-o", "json").document
    after = ctl.ok("restart", "t", "-o", "json").document
    assert after["ready"]["max_num_seqs"] == 9
    assert after["process"]["pid"] != before["process"]["pid"]
    ctl.ok("stop", "t")
    assert ctl.ok("restart", "t", "-o", "json").document["changed"] is True


def test_drain_lets_requests_finish(ctl: Ctl) -> None:
    ctl.start("t")
    child = ctl.generate(tokens=600)
    ctl.wait_running(1)
    result = ctl.ok("drain", "t", "--grace", "60s")
    assert "new requests refused" in result.err
    assert "1 running, 0 waiting" in result.err
    assert "the slowest request in" in result.err
    assert result.out.startswith("t  drained in ")
    out, _ = child.communicate(timeout=20)
    assert (child.returncode, bool(out)) == (0, True)


def test_a_drain_that_misses_its_deadline_says_whom(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="50")
    child = ctl.generate()
    external = ctl.wait_running(1)[0]["external_id"]
    result = ctl("drain", "t", "--grace", "1s", "-o", "json")
    assert result.code == 124
    assert "1 request aborted" in result.document["message"]
    assert external in result.err
    assert child.wait(20) == 1
    assert "1 request by the stop or drain" in ctl.ok("status", "t").out


def test_ctrl_c_leaves_the_drain_and_uncordon_cancels_it(ctl: Ctl) -> None:
    ctl.start("t")
    request = ctl.generate()
    ctl.wait_running(1)
    child = ctl.popen("drain", "t", "--grace", "60s")
    wait_until(lambda: ctl("status", "t", "-p", "state").out == "draining\n", 20.0, "draining")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=10)
    assert child.returncode == 130
    assert "goes on draining" in err
    assert ctl("status", "t", "-p", "state").out == "draining\n"
    watcher = ctl.popen("drain", "t", "--grace", "60s")
    watcher.stderr.readline()  # type: ignore[union-attr]
    assert "drain cancelled" in ctl.ok("uncordon", "t").out
    assert watcher.wait(20) == 5
    ctl.ok("abort", "--all", "--yes")
    request.wait(20)
    ctl.ok("generate", "on it goes", "--max-tokens", "2")


def test_on_timeout_fail_aborts_nobody_and_goes_on_draining(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="10")
    child = ctl.generate(tokens=1500)
    ctl.wait_running(1)
    failed = ctl("drain", "t", "--grace", "300ms", "--on-timeout", "fail")
    assert (failed.code, "1 request left; it goes on draining" in failed.err) == (124, True)
    assert ctl("status", "t", "-p", "state").out == "draining\n"
    assert len(ctl.requests()) == 1
    assert ctl("generate", "x").code == 5
    assert "drain cancelled" in ctl.ok("uncordon", "t").out
    again = ctl("drain", "t", "--grace", "300ms", "--on-timeout", "fail")
    assert again.code == 124
    assert ctl.ok("drain", "t", "--grace", "60s").out.startswith("t  drained")  # takes the place of the one that failed
    assert child.wait(20) == 0


def test_a_drain_that_failed_ends_the_engine_once_it_is_empty(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="10")
    child = ctl.generate(tokens=500)
    ctl.wait_running(1)
    assert ctl("drain", "t", "--grace", "200ms", "--on-timeout", "fail").code == 124
    ctl.ok("wait", "t", "--for", "stopped", "--timeout", "60s")
    assert child.wait(20) == 0
    assert ctl("status", "t", "-p", "state").out == "exited\n"


def test_a_drain_says_nothing_before_it_is_so(ctl: Ctl) -> None:
    ctl.start("t")
    for words in (["--grace", "1e300"], ["--grace", "-1s"], ["--on-timeout", "sulk"]):
        refused = ctl("drain", "t", *words)
        assert (refused.code, "draining t" in refused.err) == (2, False)
    supervisor = ctl.record()["supervisor"]["pid"]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        silent = ctl("drain", "t")
        assert (silent.code, "draining t" in silent.err) == (69, False), silent.err
    finally:
        os.kill(supervisor, signal.SIGCONT)


def test_a_stalled_engine_is_not_drained_later(ctl: Ctl) -> None:
    ctl.start("t")
    with stopped_engine(ctl):
        failed = ctl("drain", "t")
        assert failed.code == 124
        assert "no drain began in 5.0 s" in failed.err and "is stalled for " in failed.err
        assert "enginectl restart t" in failed.err and "new requests are taken again" in failed.err
        ctl.ok("cordon", "t")
        assert "taken again" not in ctl("drain", "t").err
    wait_until(lambda: ctl("status", "t", "-p", "state").out == "cordoned\n", 20.0, "going on, as cordoned as before")
    ctl.ok("uncordon", "t")
    assert ctl.ok("generate", "on it goes", "--max-tokens", "2").out
    assert ctl.ok("call", "stats", "-o", "json").document["value"]["phase"] == "running"


def test_ctrl_c_leaves_the_stop_going_on(ctl: Ctl) -> None:
    ctl.start("t")
    request = ctl.generate()
    ctl.wait_running(1)
    child = ctl.popen("stop", "t", "--yes", "--grace", "3s")
    assert "drain" in child.stderr.readline()  # type: ignore[union-attr]
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=10)
    assert (child.returncode, "goes on stopping" in err) == (130, True)
    ctl.ok("wait", "t", "--for", "stopped", "--timeout", "30s")
    request.wait(20)


def test_a_stopped_process_is_a_stall_and_status_says_so(ctl: Ctl) -> None:
    ctl.start("t")
    pid = ctl.record()["engine"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: ctl("status", "t", "--exit-status").code == 11, 20.0, "stalled")
        page = ctl.ok("status", "t").out
        assert page.startswith("t  stalled")
        assert "enginectl stacks t" in page
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: ctl("status", "t", "--exit-status").code == 0, 20.0, "going on")


def test_a_death_nobody_asked_for_is_a_post_mortem(ctl: Ctl) -> None:
    ctl.start("t")
    child = ctl.generate()
    ctl.wait_running(1)
    os.kill(ctl.record()["engine"]["pid"], signal.SIGKILL)
    assert child.wait(20) == 9
    wait_until(lambda: ctl("status", "t", "-p", "state").out == "failed\n", 20.0, "failed")
    page = ctl.ok("status", "t").out
    assert "signal 9 KILL" in page
    assert "evidence" in page
    assert ctl("status", "t", "--exit-status").code == 9
    row = ctl.ok("ps").out.splitlines()[1]
    assert "failed" in row
    assert "signal 9 KILL" in row
