from __future__ import annotations

import json

from engine.messages import SchedulerStats, StepTimings
from enginectl.control_flight import FlightHead
from enginectl.supervisor.flight import KEEP, FlightRing, to_json_lines


def stats(step: int, **more: object) -> SchedulerStats:
    return SchedulerStats(step_counter=step, num_running_reqs=2, num_scheduled_tokens=2, free_blocks=7, **more)  # type: ignore[arg-type]


def test_the_last_steps_stay() -> None:
    ring = FlightRing()
    for step in range(KEEP + 100):
        ring.add(stats(step), float(step))
    assert len(ring) == KEEP
    assert [ring.steps()[0].step, ring.steps()[-1].step] == [100, KEEP + 99]


def test_the_report_of_an_idle_engine_is_no_step() -> None:
    ring = FlightRing()
    ring.add(stats(1), 1.0)
    ring.add(stats(1), 2.0)
    assert [step.t for step in ring.steps()] == [1.0]


def test_times_are_null_where_the_engine_tells_none() -> None:
    ring = FlightRing()
    ring.add(stats(1), 1.0)
    ring.add(stats(2, step_timings=StepTimings(execute_ms=4.0)), 2.0)
    lines = [json.loads(line) for line in to_json_lines(FlightHead(name="t"), ring.steps()).splitlines()]
    assert lines[0]["type"] == "flight" and lines[0]["name"] == "t"
    assert [line["execute_ms"] for line in lines[1:]] == [None, 4.0]
    assert lines[1]["free_blocks"] == 7


def test_an_engine_that_does_not_number_its_steps_is_counted_here() -> None:
    ring = FlightRing()
    for now in range(3):
        ring.add(SchedulerStats(num_running_reqs=1, kv_cache_usage=0.5), float(now))
    assert [(step.step, step.kv_used_ratio, step.free_blocks) for step in ring.steps()] == [
        (1, 0.5, None), (2, 0.5, None), (3, 0.5, None),
    ]  # fmt: skip
