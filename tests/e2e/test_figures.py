"""The step times that are shown are those of the engine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
SLOW = "tests.support.executors:SlowExecutor"
WITHIN = 0.10


def shown_and_true(ctl: Ctl, name: str) -> tuple[float, float]:
    """p50 as `status` shows it, and as the engine itself last measured one step."""
    stats: dict[str, Any] = ctl.ok("status", name, "-o", "json").document["stats"]
    return float(stats["step"]["p50_ms"]), float(stats["step"]["execute_ms"])


def test_two_engines_slowed_differently_show_their_own_step_time(ctl: Ctl) -> None:
    """A step sleeps for a known time; what the machine adds is in the engine's own timing of that step."""
    waits_ms = {"quick": 40, "slow": 90}
    for name, step_ms in waits_ms.items():
        ctl.start(name, "--set", f"executor={SLOW}", TEST_STEP_S=str(step_ms / 1000))
        ctl.ok("generate", "-e", name, "--ids", "5 6 7", "--max-tokens", "30", "--ignore-eos")
    for name, step_ms in waits_ms.items():
        wait_until(lambda name=name: shown_and_true(ctl, name)[0] > 0, 10, "a p50")  # type: ignore[misc]
        p50, execute = shown_and_true(ctl, name)
        assert step_ms <= p50 and abs(p50 - execute) <= WITHIN * execute, (name, p50, execute)
    assert shown_and_true(ctl, "quick")[0] < shown_and_true(ctl, "slow")[0]


STEP_MS = 10
MANY = 4


def rates(ctl: Ctl) -> tuple[float, float, float]:
    stats: dict[str, Any] = ctl.ok("status", "t", "-o", "json").document["stats"]
    return float(stats["decode_tok_s"]), float(stats["prefill_tok_s"]), float(stats["requests_in_s"])


def test_rates_are_zero_once_it_is_idle_and_the_next_request_has_only_its_own(ctl: Ctl) -> None:
    """One request gives at most a token a step, however slow the machine; several before it gave more."""
    ctl.start("t", PACED_STEP_MS=str(STEP_MS))
    for child in [ctl.generate(tokens=300) for _ in range(MANY)]:
        child.communicate(timeout=60)
    wait_until(lambda: rates(ctl) == (0.0, 0.0, 0.0), 5.0, "no rate when idle")  # the window is one of 10 s
    child = ctl.generate(tokens=600)
    ctl.wait_running(1)
    ctl.ok("pause", "t")
    wait_until(lambda: rates(ctl)[:2] == (0.0, 0.0), 5.0, "no rate while it is paused")
    assert len(ctl.requests()) == 1
    ctl.ok("resume", "t")
    seen = []
    while child.poll() is None:
        seen.append(rates(ctl))
    assert any(decode > 0 for decode, _, _ in seen)
    assert max(decode for decode, _, _ in seen) <= 1000 / STEP_MS
    assert max(came for _, _, came in seen) <= 1.0
