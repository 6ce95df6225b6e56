"""A client that sends more than the engine can take: bounded queues, nobody else waits, one final output for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import limits
from engine.messages import FinishReason
from tests.support.engine_process import Running, stats_with_nothing_left

pytestmark = [pytest.mark.e2e, pytest.mark.fault, pytest.mark.timeout(180)]
LONG = list(range(10, 300)) * 6
"""About 5 KB on the wire."""
FLOODER, OTHER = 0, 1


def stats(running: Running) -> dict[str, Any]:
    found = running.frontend.call("stats", client=OTHER)
    assert isinstance(found, dict)
    return found


def test_what_waits_for_the_loop_is_bounded_and_nobody_else_waits(tiny_model: Path) -> None:
    """Steps of a second: meanwhile the flood stays with its sender, but for what may wait. Its aborts get through."""
    count = 4000
    options = {"executor": "tests.support.executors:SlowExecutor", "env": {"TEST_STEP_S": "1"}}
    with Running(tiny_model, num_clients=2, num_gpu_blocks=256, max_num_seqs=2, **options) as running:
        frontend = running.frontend
        first = frontend.add("first", [5], client=OTHER, max_tokens=500, priority=-1)
        frontend.pump(lambda: bool(first.token_ids))
        flood = [frontend.add(f"flood-{number}", LONG, client=FLOODER, max_tokens=50) for number in range(count)]
        frontend.abort([one.request_id for one in flood], client=FLOODER)
        frontend.add("other", [5], client=OTHER, max_tokens=1, priority=-1)
        most = 0
        while not all(one.is_finished for one in flood):
            most = max(most, stats(running)["input_queue"])
            frontend.read_some(0.02)
        assert 100 < most <= limits.MAX_QUEUED_BYTES // 4000
        assert all(one.num_finals == 1 for one in flood)
        assert {one.finish_reason for one in flood} <= {FinishReason.ABORT, FinishReason.LENGTH}
        assert frontend.collect("other").finish_reason is FinishReason.LENGTH
        frontend.abort(["first"], client=OTHER)
        frontend.pump(lambda: first.is_finished)
        stats_with_nothing_left(frontend, OTHER)


def test_more_than_the_engine_holds_is_refused_with_the_numbers_and_later_taken(tiny_model: Path) -> None:
    """The limit is 64 KiB here. What runs goes on; once some have ended there is room again."""
    with Running(tiny_model, executor="tests.support.saboteurs:FullExecutor", max_num_seqs=4) as running:
        frontend = running.frontend
        frontend.call("pause_scheduler", "keep", False)
        found = [frontend.add(f"r{number}", LONG, max_tokens=3) for number in range(100)]
        frontend.call("ping")
        refused = [one for one in found if one.is_finished]
        assert 50 < len(refused) < 100
        assert {one.finish_reason for one in refused} == {FinishReason.ERROR}
        assert "65536 is the limit" in str(refused[0].stop_reason) and "requests of" in str(refused[0].stop_reason)
        frontend.call("resume_scheduler")
        frontend.pump(lambda: all(one.is_finished for one in found))
        assert [one.num_finals for one in found] == [1] * 100
        assert (
            frontend.add("later", LONG, max_tokens=3) and frontend.collect("later").finish_reason is FinishReason.LENGTH
        )
        running.frontend.abort([])
