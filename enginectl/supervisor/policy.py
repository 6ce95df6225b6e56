"""Whether and when an engine that ended is started again: a pure function over how often it was.

Enters: the policy, past restarts, now. Leaves: a delay, or the reason to give up."""

from __future__ import annotations

from dataclasses import dataclass

from enginectl.settings import restart_limit

WINDOW_S = 600.0
MAX_DELAY_S = 60.0
HEALTHY_S = 600.0
"""An engine that lived so long counts as well again: the delays begin anew."""


@dataclass(frozen=True, slots=True)
class Restart:
    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    reason: str


def decide(policy: str, past: list[float], now: float, lived_s: float) -> Restart | GiveUp:
    """`past`: when earlier restarts were decided, monotonic s. The first restart comes after 1 s, then 2, 4 .. 60."""
    limit = restart_limit(policy)
    if limit == 0:
        return GiveUp("")
    recent = [when for when in past if now - when < WINDOW_S]
    if limit is not None and len(recent) >= limit:
        return GiveUp(f"gave up after {len(recent)} restarts within {WINDOW_S / 60:.0f} minutes")
    streak = 0 if lived_s >= HEALTHY_S else len(recent)
    return Restart(min(MAX_DELAY_S, float(2 ** min(streak, 6))))
