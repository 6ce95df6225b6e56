"""Slow steps, on a clock of the test's own."""

from __future__ import annotations

from enginectl.control_stats import SlowStep
from enginectl.supervisor.slow import MIN_LOST_MS, MIN_STEPS, NEWS_EVERY_S, SlowSteps


def judged(usual_ms: float = 20.0) -> SlowSteps:
    slow = SlowSteps(60.0)
    slow.set_usual([usual_ms] * MIN_STEPS)
    return slow


def test_a_multiple_of_the_usual_is_slow_and_counted_in_the_window() -> None:
    slow = judged()
    for step, ms in ((1, 20.0), (2, 59.0), (3, 61.0), (4, 300.0)):
        slow.add(float(step), step, ms, 38, 0 if step < 4 else 8192)
    assert slow.count(4.0) == 2
    assert slow.last == SlowStep(step=4, ms=300.0, tokens=38, prefill_tokens=8192)
    assert slow.count(63.5) == 1
    assert (slow.count(65.0), slow.last) == (0, None)


def test_without_a_usual_step_and_below_a_loss_that_matters_none_is_slow() -> None:
    few = SlowSteps(60.0)
    few.set_usual([20.0] * (MIN_STEPS - 1))
    few.add(1.0, 1, 1e6, 1, 0)
    assert few.count(1.0) == 0
    tiny = judged(0.1)
    tiny.add(1.0, 1, 0.1 + MIN_LOST_MS - 0.2, 1, 0)
    assert tiny.count(1.0) == 0
    tiny.add(1.0, 2, 0.1 + MIN_LOST_MS + 0.2, 1, 0)
    assert tiny.count(1.0) == 1


def test_news_are_rare_and_told_once() -> None:
    slow = judged()
    assert slow.news(0.0) == ""
    slow.add(1.0, 88197, 61.0, 8193, 8192)
    assert slow.news(1.0) == "88197 (61 ms, usual 20 ms): prefill 8,192 tokens"
    slow.add(2.0, 88200, 70.0, 3, 0)
    assert slow.news(2.0) == ""
    assert slow.news(1.0 + NEWS_EVERY_S) == "88200 (70 ms, usual 20 ms): 3 tokens"
    assert slow.news(500.0) == ""
