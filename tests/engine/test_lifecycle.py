"""The lifecycle table: what leads where, and what may be done in which phase."""

from __future__ import annotations

import pytest

from engine.lifecycle import NEXT, Event, IllegalTransition, Lifecycle, Phase


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def running(clock: Clock | None = None) -> Lifecycle:
    life = Lifecycle(clock or Clock())
    life.advance(Event.STARTED)
    return life


def test_every_phase_can_be_reached_and_only_final_ones_end() -> None:
    reached = {Phase.STARTING} | set(NEXT.values())
    assert reached == set(Phase)
    for phase in Phase:
        leaves = {to for (at, event), to in NEXT.items() if at is phase and event is not Event.DIED} - {phase}
        assert bool(leaves) != phase.is_final


def test_a_missing_pair_names_phase_and_event() -> None:
    with pytest.raises(IllegalTransition, match="no transition from running on started"):
        running().advance(Event.STARTED)


def test_a_stop_while_starting_never_reaches_running() -> None:
    life = Lifecycle()
    assert life.ask_shutdown(30, may_cancel=False) is Phase.STOPPED
    with pytest.raises(IllegalTransition):
        life.advance(Event.STARTED)


def test_a_drain_has_a_deadline_and_a_later_shorter_one_tightens_it() -> None:
    clock = Clock()
    life = running(clock)
    assert life.ask_shutdown(60, may_cancel=True) is Phase.DRAINING
    life.ask_shutdown(90, may_cancel=True)
    assert life.seconds_left == 60
    life.ask_shutdown(5, may_cancel=True)
    assert life.seconds_left == 5 and not life.is_overdue
    clock.now += 5
    assert life.is_overdue
    assert life.advance(Event.DEADLINE_REACHED) is Phase.ABORTING and life.deadline is None


def test_zero_aborts_at_once_also_during_a_drain() -> None:
    life = running()
    life.ask_shutdown(60, may_cancel=True)
    assert life.ask_shutdown(0, may_cancel=True) is Phase.ABORTING
    assert life.advance(Event.WORK_DONE) is Phase.STOPPED


def test_cancel_leads_back_to_running_and_a_signal_forbids_it_for_good() -> None:
    life = running()
    life.ask_shutdown(60, may_cancel=True)
    assert life.may_cancel
    assert life.advance(Event.CANCEL_ASKED) is Phase.RUNNING and life.deadline is None
    life.ask_shutdown(60, may_cancel=False)
    life.ask_shutdown(60, may_cancel=True)
    assert not life.may_cancel


@pytest.mark.parametrize("phase", list(Phase))
def test_columns_agree(phase: Phase) -> None:
    if phase.may_admit:
        assert phase.may_step and phase.may_sleep
    if phase.is_final:
        assert phase.is_shutting_down and not phase.may_step
    assert NEXT[(phase, Event.DIED)] is Phase.DEAD
