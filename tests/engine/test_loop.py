"""The busy loop of a real engine process: it sleeps without work, never waits with work, touches no socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.messages import FinishReason
from tests.support.engine_process import Running
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
PROMPT = [5, 6, 7, 8]


def slow(step_s: float) -> dict[str, Any]:
    return {"executor": "tests.support.executors:SlowExecutor", "env": {"TEST_STEP_S": str(step_s)}}


def stats(running: Running) -> dict[str, Any]:
    found = running.frontend.call("stats")
    assert isinstance(found, dict)
    return found


def test_without_work_it_does_not_turn(shared: Running) -> None:
    process = psutil.Process(shared.engine.pid)
    shared.frontend.call("ping")
    turns = stats(shared)["loop_counter"]
    settled = wait_until(lambda: [process.num_ctx_switches().voluntary], every_s=0.3)[0]
    with pytest.raises(TimeoutError):
        shared.frontend.recv_output(timeout_s=1.0)
    assert process.num_ctx_switches().voluntary - settled <= 4
    assert stats(shared)["loop_counter"] == turns


def test_what_came_during_a_step_is_all_in_the_next(tiny_model: Path) -> None:
    with Running(tiny_model, **slow(0.5)) as running:
        frontend = running.frontend
        first = frontend.add("first", PROMPT, max_tokens=4)
        frontend.pump(lambda: bool(first.token_ids))
        calls = [frontend.ask("ping") for _ in range(20)]
        later = [frontend.add(f"later{number}", PROMPT, max_tokens=1) for number in range(20)]
        frontend.pump(lambda: all(one.is_finished for one in [first, *later]))
        assert all(frontend.answer(call).failure_message is None for call in calls)
        rows = frontend.call("flight_record")
        assert isinstance(rows, list)
        assert [row["prefill_tokens"] for row in rows if row["prefill_tokens"]] == [len(PROMPT), 20 * len(PROMPT)]


def test_an_abort_during_a_step_takes_effect_before_its_outputs(tiny_model: Path) -> None:
    """The early lane: one more token would have come of the step that runs when the abort arrives."""
    with Running(tiny_model, **slow(1.0)) as running:
        victim = running.frontend.add("victim", PROMPT, max_tokens=50)
        other = running.frontend.add("other", PROMPT, max_tokens=3)
        running.frontend.pump(lambda: bool(victim.token_ids) and bool(other.token_ids))
        seen: dict[str, Any] = {}
        running.frontend.pump(lambda: seen.update(stats(running)) or (seen["step_running_s"] or 9.0) < 0.3)  # type: ignore[func-returns-value]
        running.frontend.abort(["victim"])
        running.frontend.pump(lambda: victim.is_finished and other.is_finished)
        assert victim.finish_reason is FinishReason.ABORT
        assert len(victim.token_ids) == seen["step_counter"], "the step that ran gave it a token after the abort"
        assert len(other.token_ids) == 3


def test_when_nothing_can_be_scheduled_it_yields_a_millisecond(tiny_model: Path) -> None:
    """Without the pause the loop would turn tens of thousands of times; a busy machine makes it turn less often."""
    starve_s = 1.0
    options = {"executor": "tests.support.saboteurs:StarvingExecutor", "env": {"TEST_STARVE_S": str(starve_s)}}
    with Running(tiny_model, **options) as running:
        before = stats(running)["loop_counter"]
        done = running.frontend.add("starved", PROMPT, max_tokens=2)
        running.frontend.pump(lambda: done.is_finished)
        assert done.finish_reason is FinishReason.LENGTH
        assert 10 < stats(running)["loop_counter"] - before < starve_s * 1000 + 20


def test_the_main_loop_never_touches_a_socket(tiny_model: Path) -> None:
    options = {"executor": "tests.support.saboteurs:SocketGuard", "env": {"TEST_STEP_S": "0.01"}}
    with Running(tiny_model, num_clients=2, **options) as running:
        frontend = running.frontend
        first = frontend.add("first", PROMPT, max_tokens=5)
        second = frontend.add("second", PROMPT, max_tokens=500, client=1)
        frontend.pump(lambda: first.is_finished and bool(second.token_ids))
        frontend.add("wrong", [], client=1)
        frontend.send_frames([b"\x00", b"\xc1"])
        for name in ("ping", "requests", "reset_prefix_cache"):
            frontend.call(name, client=1)
        frontend.abort(["second"], client=1)
        frontend.pump(lambda: second.is_finished)
        frontend.call("shutdown", 5.0)
        frontend.wait_dead(10)
        assert running.engine.wait() == 0, running.engine.log
        assert "sockets were used by ['engine-in', 'engine-out', 'nobody yet']" in running.engine.log
