"""The verdict as a pure function: what each set of observations is called."""

from __future__ import annotations

import pytest

from enginectl.supervisor.verdict import Observation, judge, predict_step_s


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (Observation(), "idle"),
        (Observation(running=2), "busy"),
        (Observation(running=2, waiting=3), "busy"),
        (Observation(running=8, waiting=1, max_num_seqs=8), "saturated"),
        (Observation(running=2, waiting=1, max_num_seqs=8, kv_used_ratio=0.95), "saturated"),
        (Observation(running=8, max_num_seqs=8), "busy"),
        (Observation(is_paused=True, waiting=2), "paused"),
        (Observation(is_paused=True, is_sleeping=True), "sleeping"),
        (Observation(is_cordoned=True, running=2), "cordoned"),
        (Observation(proc_state="T"), "stalled"),
        (Observation(proc_state="t", is_paused=True), "stalled"),
        (Observation(running=1, turn_age_s=6, expects_turn=True, cpu_idle_s=6), "stalled"),
        (Observation(running=1, turn_age_s=6, expects_turn=True, cpu_idle_s=0.5), "busy"),  # a long prefill computes
        (Observation(running=1, turn_age_s=4, expects_turn=True, cpu_idle_s=4), "busy"),
        (Observation(turn_age_s=600, cpu_idle_s=600), "idle"),  # nobody asked it to turn
        (Observation(running=1, turn_age_s=20, expects_turn=True, cpu_idle_s=20, predicted_step_s=10), "busy"),
        (Observation(running=1, turn_age_s=31, expects_turn=True, cpu_idle_s=31, predicted_step_s=10), "stalled"),
        (Observation(running=1, step_running_s=61, cpu_idle_s=0), "stalled"),
        (Observation(running=1, step_running_s=59, cpu_idle_s=0), "busy"),
        (Observation(running=1, turn_age_s=61, expects_turn=True, cpu_idle_s=0), "stalled"),
    ],
)
def test_what_is_seen_has_one_name(seen: Observation, state: str) -> None:
    assert judge(seen).state == state


def test_a_stall_says_why() -> None:
    assert "state T" in judge(Observation(proc_state="T")).reason
    assert "61 s" in judge(Observation(step_running_s=61)).reason


def test_the_prediction_grows_with_the_tokens_and_never_undercuts_what_was_seen() -> None:
    measured = [(1, 0.02), (4, 0.03), (512, 2.0)]
    assert predict_step_s(4, measured) >= 0.03
    assert predict_step_s(2048, measured) >= 8.0
    assert predict_step_s(2048, []) > 5.0
