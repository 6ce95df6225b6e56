from __future__ import annotations

import pytest

from enginectl.control import EngineView, State
from enginectl.control_stats import Stats
from enginectl.errors import Exit
from enginectl.probing import Kind, judge, judge_view, line

OK, NOT_NOW, GONE, STALLED = Exit.OK, Exit.WRONG_STATE, Exit.NOT_RUNNING, Exit.STALLED


@pytest.mark.parametrize(
    ("state", "liveness", "readiness", "startup"),
    [
        ("starting", OK, NOT_NOW, NOT_NOW),
        ("idle", OK, OK, OK),
        ("busy", OK, OK, OK),
        ("saturated", OK, OK, OK),
        ("paused", OK, NOT_NOW, OK),
        ("sleeping", OK, NOT_NOW, OK),
        ("draining", OK, NOT_NOW, OK),
        ("stopping", OK, NOT_NOW, OK),
        ("stalled", STALLED, STALLED, OK),
        ("backoff", GONE, GONE, GONE),
        ("failed", GONE, GONE, GONE),
        ("exited", GONE, GONE, GONE),
        ("lost", Exit.UNREACHABLE, Exit.UNREACHABLE, Exit.UNREACHABLE),
    ],
)
def test_each_state(state: State, liveness: Exit, readiness: Exit, startup: Exit) -> None:
    kinds: tuple[Kind, ...] = ("liveness", "readiness", "startup")
    answers = [judge(kind, state, "why", is_cordoned=False, was_ready=state != "starting") for kind in kinds]
    assert [answer.exit for answer in answers] == [liveness, readiness, startup]


def test_a_cordon_is_alive_and_not_ready() -> None:
    assert judge("liveness", "busy", "", is_cordoned=True, was_ready=True).is_ok
    answer = judge("readiness", "busy", "", is_cordoned=True, was_ready=True)
    assert (answer.exit, answer.word) == (NOT_NOW, "cordoned")


def test_the_line_of_a_healthy_engine() -> None:
    stats = Stats(step_counter=88213, loop_age_s=0.0234, running=38, waiting=4)
    view = EngineView(name="t", state="busy", stats=stats)
    assert line(judge_view("liveness", view), stats) == "ok step=88213 age=0.02s run=38 wait=4"


def test_the_line_says_why_not() -> None:
    view = EngineView(name="t", state="stalled", reason="its loop has not turned for 9 s", stats=Stats(step_counter=7))
    text = line(judge_view("liveness", view), view.stats)
    assert text == "stalled step=7 run=0 wait=0 reason: its loop has not turned for 9 s"
