from __future__ import annotations

import pytest

from enginectl import patience
from enginectl.patience import SLACK_S, Patience


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(patience, "time", found)
    return found


def test_what_was_spent_is_gone_for_what_comes_next(clock: Clock) -> None:
    waits = Patience(3.0)
    clock.now += 2.0
    assert (waits.left_s, waits.wait_s) == (1.0, pytest.approx(1.0 + SLACK_S))
    clock.now += 5.0
    assert (waits.left_s, waits.wait_s) == (0.0, SLACK_S)


def test_a_question_to_a_person_costs_nothing(clock: Clock) -> None:
    waits = Patience(3.0)
    with waits.stopped():
        clock.now += 60.0
    assert waits.left_s == 3.0
