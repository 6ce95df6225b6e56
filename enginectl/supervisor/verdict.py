"""What state a serving engine is in: a pure function over what was observed of it.

A long step that uses the CPU is busy; a process that is stopped, or whose loop neither turns nor computes, stalls."""

from __future__ import annotations

from dataclasses import dataclass

from enginectl.control import State
from enginectl.text import count

STALL_S = 5.0
PREDICTED_FACTOR = 3.0
FULL_RATIO = 0.9
"""KV use from which work that waits is waiting for memory."""
SECONDS_PER_TOKEN = 0.02
"""Before anything was measured: a slow CPU."""
SMALL_STEP = 64
"""Tokens up to which a step's time does not depend on their number."""


@dataclass(frozen=True, slots=True)
class Observation:
    proc_state: str = "S"
    """The letter of /proc/PID/stat."""
    turn_age_s: float = 0.0
    """Since the loop was last seen to turn: an output with stats, an answer through the loop."""
    expects_turn: bool = False
    """Something that the loop must answer is outstanding: a ping, a request in flight."""
    cpu_idle_s: float = 0.0
    """For how long the process gained no CPU time worth the name."""
    step_running_s: float | None = None
    """How long the step in progress has run, where the engine tells."""
    predicted_step_s: float = 0.0
    """For the tokens of that step, from the steps measured so far."""
    max_step_s: float = 60.0
    running: int = 0
    waiting: int = 0
    max_num_seqs: int | None = None
    kv_used_ratio: float | None = None
    is_paused: bool = False
    is_sleeping: bool = False
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    state: State
    reason: str = ""


def judge(seen: Observation) -> Verdict:
    """One of stalled, sleeping, paused, cordoned, saturated, busy, idle."""
    stalled = why_stalled(seen)
    if stalled:
        return Verdict("stalled", stalled)
    if seen.is_sleeping:
        return Verdict("sleeping", "wake gives it its memory back")
    if seen.is_paused:
        return Verdict(
            "paused", f"{count(seen.running + seen.waiting, 'request')} held" if seen.running + seen.waiting else ""
        )
    if seen.is_cordoned:
        return Verdict("cordoned", "new requests are refused until uncordon")
    if seen.waiting and seen.running:
        return _full(seen)
    return Verdict("busy" if seen.running + seen.waiting else "idle")


def _full(seen: Observation) -> Verdict:
    if seen.max_num_seqs is not None and seen.running >= seen.max_num_seqs:
        return Verdict("saturated", f"{seen.waiting} waiting: all {seen.max_num_seqs} places run")
    if seen.kv_used_ratio is not None and seen.kv_used_ratio >= FULL_RATIO:
        return Verdict("saturated", f"{seen.waiting} waiting: KV cache {seen.kv_used_ratio:.0%} used")
    return Verdict("busy")


def why_stalled(seen: Observation) -> str:
    """Empty when it is not."""
    if seen.proc_state in "Tt":
        return "the process is stopped (state T); kill -CONT lets it go on"
    step_s = seen.step_running_s
    if step_s is None and seen.expects_turn:
        step_s = seen.turn_age_s
    if step_s is not None and step_s > seen.max_step_s:
        return f"one step has run for {step_s:.0f} s (limit {seen.max_step_s:.0f} s)"
    if not seen.expects_turn:
        return ""
    limit_s = max(STALL_S, PREDICTED_FACTOR * seen.predicted_step_s)
    if seen.turn_age_s > limit_s and seen.cpu_idle_s > STALL_S - 1.5:
        return f"its loop has not turned for {seen.turn_age_s:.0f} s and uses no CPU"
    return ""


def predict_step_s(tokens: int, measured: list[tuple[int, float]]) -> float:
    """For a step of so many tokens, from measured steps (tokens, s): the slowest small one plus the slowest rate of
    the large ones; a slow CPU's rate until a large one was seen."""
    fixed_s = max((seconds for count, seconds in measured if count <= SMALL_STEP), default=0.0)
    rate_s = max((seconds / count for count, seconds in measured if count > SMALL_STEP), default=SECONDS_PER_TOKEN)
    return fixed_s + tokens * rate_s
