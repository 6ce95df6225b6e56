"""When an engine is started again, and when nobody tries any more."""

from __future__ import annotations

from enginectl.supervisor.policy import GiveUp, Restart, decide


def test_no_means_never() -> None:
    assert decide("no", [], 0.0, 5.0) == GiveUp("")


def test_delays_double_up_to_a_minute_and_the_cap_ends_it() -> None:
    past: list[float] = []
    now, delays = 1000.0, []
    while isinstance(choice := decide("on-failure:8", past, now, 1.0), Restart):
        delays.append(choice.delay_s)
        now += choice.delay_s
        past.append(now)
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
    assert "gave up after 8 restarts" in choice.reason


def test_five_is_the_cap_that_is_not_said() -> None:
    assert isinstance(decide("on-failure", [1.0] * 5, 2.0, 1.0), GiveUp)
    assert isinstance(decide("on-failure", [1.0] * 4, 2.0, 1.0), Restart)


def test_old_restarts_are_forgotten_and_a_long_life_begins_anew() -> None:
    assert decide("on-failure:2", [0.0, 1.0], 700.0, 1.0) == Restart(1.0)
    assert decide("always", [1.0] * 4, 500.0, 1.0) == Restart(16.0)
    assert decide("always", [1.0] * 4, 500.0, 700.0) == Restart(1.0)
    assert decide("always", [1.0] * 50, 2.0, 1.0) == Restart(60.0)
