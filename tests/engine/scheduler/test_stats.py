"""Counters and the flight record."""

from __future__ import annotations

import json
from threading import Thread

from engine.scheduler.stats import FLIGHT_RECORD_STEPS, Counters, FlightRecord, StepRecord


def _fill(record: FlightRecord, first: int, last: int) -> None:
    for step in range(first, last):
        record.add(step, step / 10, 3, 2, 1, 0, 90, 0, 0.1, 5.0, 0.5, 0.2)


def test_the_ring_keeps_the_last_steps() -> None:
    record = FlightRecord()
    _fill(record, 0, FLIGHT_RECORD_STEPS + 10)
    steps = record.steps()
    assert len(record) == len(steps) == FLIGHT_RECORD_STEPS == 4096
    assert (steps[0].step, steps[-1].step) == (10, 4105)
    assert [step.step for step in record.steps(2)] == [4104, 4105]
    assert record.steps(0) == [] and len(record.steps(10**6)) == 4096


def test_json_lines_name_every_field() -> None:
    record = FlightRecord(4)
    _fill(record, 0, 6)
    lines = [json.loads(line) for line in record.to_json_lines().splitlines()]
    assert [line["step"] for line in lines] == [2, 3, 4, 5]
    assert set(lines[0]) == set(StepRecord._fields)
    assert lines[0]["execute_ms"] == 5.0 and lines[0]["free_blocks"] == 90
    assert FlightRecord().to_json_lines() == b""


def test_reading_while_another_thread_writes() -> None:
    record = FlightRecord(64)
    writer = Thread(target=_fill, args=(record, 0, 50_000))
    writer.start()
    while writer.is_alive():
        steps = [step.step for step in record.steps()]
        assert steps == list(range(steps[0], steps[0] + len(steps))) if steps else True
    writer.join(10)
    assert record.steps()[-1].step == 49_999


def test_lookups_of_new_and_of_preempted_are_apart() -> None:
    counters = Counters()
    counters.count_lookup(10, 4, again=False)
    counters.count_lookup(20, 8, again=True)
    delta = counters.take_prefix_delta()
    assert (delta.requests, delta.queries, delta.hits) == (1, 10, 4)
    assert (delta.preempted_requests, delta.preempted_queries, delta.preempted_hits) == (1, 20, 8)
    assert (counters.prefix_queries, counters.prefix_hits) == (30, 12)
    assert counters.take_prefix_delta().requests == 0
    assert set(counters.finished) == {"stop", "length", "abort", "error", "repetition"}
