from __future__ import annotations

import pytest

from enginectl.conditions import parse_condition
from enginectl.control import EngineView, State
from enginectl.control_stats import Stats, StepStats
from enginectl.errors import UsageError


def view(state: State, **stats: object) -> EngineView:
    return EngineView(name="t", state=state, stats=Stats(**stats) if stats else None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "seen", "holds"),
    [
        ("ready", view("idle"), True),
        ("ready", view("busy", running=3), True),
        ("ready", view("starting"), False),
        ("ready", view("paused"), False),
        ("idle", view("idle", running=0), True),
        ("idle", view("busy", running=1), False),
        ("idle", view("cordoned", running=0), True),
        ("idle", view("starting"), False),
        ("stopped", view("exited"), True),
        ("stopped", view("stopping"), False),
        ("kv<0.8", view("busy", kv_used_ratio=0.5), True),
        ("kv<80%", view("busy", kv_used_ratio=0.9), False),
        ("kv<0.8", view("busy", running=1), False),
        ("running>=2", view("busy", running=2), True),
        ("waiting == 0", view("busy", waiting=0), True),
        ("requests<5", view("busy", running=2, waiting=3), False),
        ("step_ms<30", view("busy", step=StepStats(p50_ms=20.0)), True),
        ("kv<0.8", view("starting"), False),
    ],
)
def test_conditions(word: str, seen: EngineView, holds: bool) -> None:
    assert parse_condition(word).holds(seen) is holds


def test_what_has_ended_can_never_become_ready_but_is_stopped() -> None:
    for state in ("exited", "failed", "stopping", "lost"):
        assert parse_condition("ready").is_impossible(view(state))
        assert parse_condition("kv<0.8").is_impossible(view(state))
        assert not parse_condition("stopped").is_impossible(view(state))
    for state in ("starting", "backoff", "draining", "stalled", "paused"):
        assert not parse_condition("ready").is_impossible(view(state))


def test_an_engine_that_is_being_restarted_can_become_ready() -> None:
    stopping = view("stopping")
    stopping.returns = True
    assert not parse_condition("ready").is_impossible(stopping)


@pytest.mark.parametrize(
    ("word", "near"), [("redy", "ready"), ("runing<3", "running"), ("stoped", "stopped"), ("<3", ""), ("", "")]
)
def test_unknown_conditions_suggest(word: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_condition(word)
    assert near in caught.value.message
