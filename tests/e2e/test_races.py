"""The same verb by many at once, and verbs that meet an engine on its way down: everybody gets the result there is."""

from __future__ import annotations

import json

import pytest

from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.fault]
MANY = 10


def test_twenty_starts_give_one_engine_and_its_result_to_all_who_asked_for_it(ctl: Ctl) -> None:
    words = ["start", "t", "--model", str(ctl.make_model()), "--set", "executor=null", "-o", "json"]
    children = [ctl.popen(*words) for _ in range(18)] + [ctl.popen(*words, "--set", "seed=5") for _ in range(2)]
    documents = [json.loads(child.communicate(timeout=120)[0]) for child in children]
    codes = sorted(child.returncode for child in children)
    assert codes in ([0] * 18 + [7] * 2, [0] * 2 + [7] * 18), documents
    served = [document for document in documents if document["kind"] == "Engine"]
    assert sum(document["changed"] for document in served) == 1
    assert len({document["process"]["pid"] for document in served}) == 1


def test_parallel_restarts_end_with_an_engine_that_serves_and_parallel_stops_with_none(ctl: Ctl) -> None:
    ctl.start("t", executor="null")
    restarts = [ctl.popen("restart", "t", "-o", "json") for _ in range(MANY)]
    ended = [(child.communicate(timeout=120), child.returncode) for child in restarts]
    assert [code for _, code in ended] == [0] * MANY, ended
    assert all(json.loads(out)["ready"] for (out, _), _ in ended)
    view = ctl.ok("status", "t", "-o", "json").document
    assert view["state"] == "idle"
    assert 1 <= view["restarts"] < MANY
    stops = [ctl.popen("stop", "t", "-o", "json") for _ in range(MANY)]
    ended = [(child.communicate(timeout=60), child.returncode) for child in stops]
    assert [code for _, code in ended] == [0] * MANY, ended
    assert any(json.loads(out)["changed"] for (out, _), _ in ended)
    assert ctl("status", "t", "--exit-status").code == 3


def test_an_engine_that_is_stopping_is_started_when_it_is_gone(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="25")
    child = ctl.generate(tokens=900)
    ctl.wait_running(1)
    stop = ctl.popen("stop", "t", "--yes", "--grace", "9s")
    wait_until(lambda: ctl("status", "t", "-p", "state").out == "stopping\n", 10.0, "stopping")
    refused = ctl("start", "t", "-d")
    assert (refused.code, "error[E1105]" in refused.err) == (5, True)
    refused = ctl("restart", "t", "--yes")
    assert (refused.code, "error[E1105]" in refused.err) == (5, True)
    started = ctl.ok("start", "t", "--timeout", "60s", "-o", "json")
    assert started.document["changed"] is True
    assert "is stopping; it starts when that is done" in started.err
    stop.communicate(timeout=30)
    assert stop.returncode == 0
    child.communicate(timeout=30)
    assert child.returncode != 0
    assert ctl.ok("status", "t", "-p", "state").out == "idle\n"


def test_up_counts_from_the_engines_own_start(ctl: Ctl) -> None:
    ctl.start("t", executor="null")
    first = ctl.ok("status", "t", "-o", "json").document
    second = ctl.ok("restart", "t", "-o", "json").document
    assert second["started_at"] > first["started_at"] + first["uptime_s"]
    assert second["uptime_s"] < second["observed_at"] - first["started_at"] - first["uptime_s"]
    assert "(1 restart)" in ctl.ok("ps").out
    assert "restarts         1" in ctl.ok("status", "t").out


def test_a_restart_that_is_to_hold_does_not_join_one_that_holds_nobody(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="25")
    child = ctl.generate(tokens=900)
    ctl.wait_running(1)
    restart = ctl.popen("restart", "t", "--yes", "--grace", "5s")
    wait_until(lambda: ctl("status", "t", "-p", "state").out == "stopping\n", 10.0, "stopping")
    refused = ctl("restart", "t", "--hold", "--yes")
    assert (refused.code, "holds no clients is under way" in refused.err) == (5, True)
    restart.communicate(timeout=60)
    assert restart.returncode == 0
    child.communicate(timeout=30)
