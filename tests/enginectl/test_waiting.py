"""What a generation without a token says, and when."""

from __future__ import annotations

import pytest

from enginectl.control import EngineView, State
from enginectl.errors import Deadline
from enginectl.waiting import AGAIN_S, FIRST_S, Waiting, why


class Engine:
    def __init__(self, *views: EngineView | None) -> None:
        self.views = list(views)

    def status(self) -> EngineView:
        view = self.views.pop(0)
        if view is None:
            raise Deadline("silent")
        return view


def test_it_is_said_once_after_a_second_and_asked_no_more_than_needed() -> None:
    engine = Engine(EngineView(name="t", state="busy"), None, EngineView(name="t", state="paused"))
    said: list[str] = []
    waiting = Waiting(engine, "cmpl-1", said.append)  # type: ignore[arg-type]
    waiting.look(FIRST_S / 2)
    assert len(engine.views) == 3
    for quiet_s in (FIRST_S, FIRST_S + 0.1, FIRST_S + AGAIN_S, FIRST_S + 2 * AGAIN_S):
        assert said == []
        waiting.look(quiet_s)
    waiting.look(60.0)
    assert said == ["waiting: t is paused; enginectl resume t lets it go on"]


@pytest.mark.parametrize(
    ("state", "helps"),
    [
        ("paused", "enginectl resume t"),
        ("sleeping", "enginectl wake t"),
        ("stalled", "enginectl stacks t"),
        ("saturated", "enginectl explain -e t cmpl-1"),
        ("busy", ""),
        ("draining", ""),
    ],
)
def test_each_reason_names_the_command_that_helps(state: State, helps: str) -> None:
    reason = why(EngineView(name="t", state=state), "cmpl-1")
    assert helps in reason and bool(reason) == bool(helps)


def test_a_held_request_says_so() -> None:
    assert "held" in why(EngineView(name="t", state="backoff", held=1, held_s=2.0), "cmpl-1")
