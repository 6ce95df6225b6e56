"""pause, resume, sleep, wake: each done, already so, refused, and seen in `status`."""

from __future__ import annotations

import signal

import pytest

from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e


def state(ctl: Ctl) -> str:
    return ctl.ok("status", "t", "-p", "state").out.strip()


def output_tokens(ctl: Ctl) -> int:
    return int(ctl.requests()[0]["output_tokens"])


def test_pause_keeps_what_runs_and_resume_lets_it_go_on(served: Ctl) -> None:
    child = served.generate(tokens=1000)
    served.wait_running(1)
    assert "1 request held until resume" in served.ok("pause", "t").out
    assert state(served) == "paused"
    frozen = output_tokens(served)
    assert served.ok("pause", "-o", "json").document["changed"] is False
    assert output_tokens(served) == frozen
    explained = served.ok("explain", served.requests()[0]["id"])
    assert "enginectl resume t" in explained.out
    assert served.ok("resume", "-o", "json").document["changed"] is True
    wait_until(lambda: output_tokens(served) > frozen, 10.0, "more tokens")
    served.ok("abort", "--all", "--yes")
    child.wait(20)


def test_pause_that_waits_is_done_when_they_are(served: Ctl) -> None:
    child = served.generate(tokens=400)
    served.wait_running(1)
    document = served.ok("pause", "--mode", "wait", "-o", "json").document
    assert (document["state"], document["stats"]["running"]) == ("paused", 0)
    assert child.wait(20) == 0
    served.ok("resume")


@pytest.mark.parametrize("verb", ["pause", "sleep"])
def test_what_was_not_done_in_time_is_taken_back(served: Ctl, verb: str) -> None:
    child = served.generate(tokens=1500)
    served.wait_running(1)
    late = served(verb, "--mode", "wait", "--timeout", "300ms")
    assert (late.code, f"the {verb} was taken back" in late.err) == (124, True)
    assert "1 request in flight" in late.err
    before = output_tokens(served)
    wait_until(lambda: output_tokens(served) > before, 10.0, "more tokens")
    served.ok("abort", "--all", "--yes")
    child.wait(20)
    assert state(served) == "idle"  # and does not fall asleep now that nothing runs
    assert served.ok("generate", "on it goes", "--max-tokens", "2").out


@pytest.mark.parametrize("verb", ["pause", "sleep"])
def test_what_was_interrupted_is_taken_back(served: Ctl, verb: str) -> None:
    child = served.generate(tokens=1500)
    served.wait_running(1)
    before = served.events()[-1]["seq"]
    waiting = served.popen(verb, "--mode", "wait")
    wait_until(lambda: state(served) == "paused", 20.0, "paused")
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=20)
    assert (waiting.returncode, f"the {verb} that was not done is taken back" in err) == (130, True)
    wait_until(lambda: state(served) == "busy", 10.0, "as it was")
    assert any(event["type"] == verb for event in served.events() if event["seq"] > before)
    served.ok("abort", "--all", "--yes")
    child.wait(20)
    assert state(served) == "idle"


def test_a_pause_that_was_there_before_stays(served: Ctl) -> None:
    child = served.generate(tokens=1500)
    served.wait_running(1)
    served.ok("pause")
    late = served("pause", "--mode", "wait", "--timeout", "300ms")
    assert (late.code, "taken back" in late.err) == (124, False)
    assert state(served) == "paused"
    served.ok("resume")
    served.ok("abort", "--all", "--yes")
    child.wait(20)


def test_what_ends_requests_is_asked_about(served: Ctl) -> None:
    child = served.generate()
    served.wait_running(1)
    for words in (["pause", "--mode", "abort"], ["sleep"]):
        refused = served(*words)
        assert refused.code == 6
        assert f"enginectl {words[0]} t" in refused.err and "--yes" in refused.err
    assert served.requests()
    served.ok("pause", "t", "--mode", "abort", "--yes")
    assert child.wait(20) == 1
    served.ok("resume")


def test_sleep_and_wake(served: Ctl) -> None:
    assert "KV cache given back" in served.ok("sleep", "t").out
    assert state(served) == "sleeping"
    assert served.ok("sleep", "-o", "json").document["changed"] is False
    assert served("resume").code == 5
    assert served.ok("wake", "-o", "json").document["changed"] is True
    assert state(served) == "idle"
    assert served.ok("wake").out == "t  awake (already so)\n"
    assert served.ok("generate", "on it goes", "--max-tokens", "2").out


def test_a_drain_allows_none_of_it(ctl: Ctl) -> None:
    ctl.start("t")
    child = ctl.generate()
    ctl.wait_running(1)
    drain = ctl.popen("drain", "t", "--grace", "60s")
    wait_until(lambda: state(ctl) == "draining", 20.0, "draining")
    for verb in ("pause", "resume", "sleep", "wake"):
        refused = ctl(verb, "t", "--yes") if verb == "sleep" else ctl(verb, "t")
        assert (refused.code, "is draining" in refused.err) == (5, True)
    ctl.ok("abort", "--all", "--yes")
    assert drain.wait(20) == 0
    child.wait(20)
    assert ctl("pause", "t").code == 3
