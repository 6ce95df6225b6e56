"""Ends that somebody else decides on: aborts at any moment, id reuse, storms; and the pause modes."""

from __future__ import annotations

import pytest

from engine.messages import FinishReason
from tests.engine.scheduler.rig import Bench, check_invariants, generation, make


def _abort(bench: Bench, *ids: str, **limits: int) -> list[tuple[int, str, int | None, object]]:
    ended = bench.scheduler.abort(ids or None, **limits)  # type: ignore[arg-type]
    for _, output in ended:
        bench.take(output)
    check_invariants(bench.scheduler)
    return [(client, output.request_id, output.finish_reason, output.stop_reason) for client, output in ended]


def _busy(**settings: int | bool) -> Bench:
    bench = Bench(seqs=2, **settings)
    for number in range(4):
        bench.add(
            make(str(number), [number + 2] * 5, arrival=float(number), seq=number, client=number % 2, max_tokens=6)
        )
    bench.step()
    return bench


def test_each_live_one_gets_one_final_output_and_the_others_go_on() -> None:
    bench = _busy()
    assert _abort(bench, "0", "3", "nobody", "0") == [(0, "0", 2, None), (1, "3", 2, None)]
    assert _abort(bench, "0") == []
    bench.run()
    assert bench.finals == dict.fromkeys("0123", 1)
    assert bench.tokens["0"] == generation([2] * 5, 1), "what it had before"
    assert bench.tokens["1"] == generation([3] * 5, 6) and bench.tokens["2"] == generation([4] * 5, 6)
    assert bench.scheduler.counters.finished["abort"] == 2
    assert bench.scheduler.kv_cache.num_used == 0


def test_reason_and_text_are_the_callers() -> None:
    bench = _busy()
    ended = bench.scheduler.abort(["1"], reason=FinishReason.ERROR, stop_reason="aborted by operator")
    assert [(c, o.finish_reason, o.stop_reason) for c, o in ended] == [(1, 3, "aborted by operator")]


def test_all_or_all_of_one_client() -> None:
    bench = _busy()
    assert {row[1] for row in _abort(bench, client_index=1)} == {"1", "3"}
    assert _abort(bench, "0", client_index=1) == []
    assert {row[1] for row in _abort(bench)} == {"0", "2"}
    assert not bench.scheduler.has_work


def test_between_schedule_and_update_it_is_skipped() -> None:
    bench = _busy()
    step = bench.scheduler.schedule()
    result = bench.runner.execute(step)
    _abort(bench, "0")
    bench.add(make("0", [9] * 3, arrival=9.0, seq=9, max_tokens=2))
    outputs = bench.scheduler.update_from_output(step, result)
    assert [output.request_id for made in outputs.values() for output in made] == ["1"]
    for output in outputs[1]:
        bench.take(output)
    bench.tokens["0"] = []
    bench.run()
    assert bench.tokens["0"] == generation([9] * 3, 2)
    assert bench.tokens["1"] == generation([3] * 5, 6)


def test_preempted_between_schedule_and_update_loses_nothing() -> None:
    bench = Bench()
    bench.add(make("a", [3] * 5, max_tokens=6))
    bench.step()
    step = bench.scheduler.schedule()
    result = bench.runner.execute(step)
    assert bench.scheduler.reset_prefix_cache(reset_running=True)
    assert bench.scheduler.update_from_output(step, result) == {}
    bench.run()
    assert bench.tokens["a"] == generation([3] * 5, 6)


def test_an_id_may_come_back_at_once_a_thousand_times() -> None:
    bench = Bench(blocks=8)
    for seq in range(0, 2000, 2):
        bench.add(make("x", [3] * 5, seq=seq, max_tokens=2))
        if seq % 3 == 0:
            bench.step()
        assert len(_abort(bench, "x", before_seq=seq + 1)) == 1
        bench.add(make("x", [4] * 5, seq=seq + 1, max_tokens=2))
        assert _abort(bench, "x", before_seq=seq + 1) == [], "the early copy of the same abort, late"
        bench.tokens["x"] = []
        bench.run()
        assert bench.tokens["x"] == generation([4] * 5, 2)
    assert bench.finals["x"] == 2000


def test_a_storm_on_ten_thousand_waiting() -> None:
    bench = Bench(seqs=4)
    for number in range(10_000):
        bench.add(make(str(number), [3], arrival=float(number), max_tokens=2))
    bench.step()
    ended = _abort(bench, *(str(number) for number in range(9_999)))
    assert len(ended) == 9_999
    assert bench.scheduler.num_waiting == 1
    assert len(bench.scheduler.waiting.new._heap) < 200
    bench.run()
    assert bench.tokens["9999"] == generation([3], 2)
    assert set(bench.finals.values()) == {1} and len(bench.finals) == 10_000
    assert bench.scheduler.schedule().dropped == ["9999"]


def test_an_aborted_waiting_request_is_nothing_the_executor_must_forget() -> None:
    bench = _busy()
    _abort(bench, "3")
    assert bench.scheduler.schedule().dropped == []


# ---------------------------------------------------------------- pause


def test_keep_freezes_and_resume_goes_on() -> None:
    bench = _busy()
    assert bench.scheduler.pause("keep") == []
    assert not bench.scheduler.has_work and not bench.scheduler.may_schedule
    used = bench.scheduler.kv_cache.num_used
    bench.add(make("new", [3], arrival=9.0, max_tokens=1))
    step = bench.scheduler.schedule()
    assert step.rows == [] and step.num_tokens == 0
    assert bench.scheduler.update_from_output(step, bench.runner.execute(step)) == {}
    assert bench.scheduler.kv_cache.num_used == used and bench.scheduler.has_unfinished
    bench.scheduler.resume()
    bench.run()
    assert bench.finals == dict.fromkeys(["0", "1", "2", "3", "new"], 1)
    assert bench.tokens["0"] == generation([2] * 5, 6)


def test_wait_lets_what_has_begun_finish_the_preempted_included() -> None:
    bench = _busy()
    bench.scheduler._book.preempt_last()
    bench.add(make("urgent", [3], priority=-9, max_tokens=1))
    bench.scheduler.pause("wait")
    assert bench.scheduler.num_begun == 2
    bench.run()
    assert sorted(bench.final) == ["0", "1"] and bench.scheduler.num_begun == 0
    assert bench.scheduler.num_waiting == 3 and not bench.scheduler.has_work
    bench.scheduler.resume()
    bench.run()
    assert len(bench.final) == 5


def test_abort_ends_all_and_holds_what_comes() -> None:
    bench = _busy()
    ended = bench.scheduler.pause("abort")
    assert sorted((client, output.request_id, output.finish_reason) for client, output in ended) == [
        (0, "0", 2),
        (0, "2", 2),
        (1, "1", 2),
        (1, "3", 2),
    ]
    bench.add(make("late", [3], max_tokens=1))
    assert not bench.scheduler.has_work and bench.scheduler.num_waiting == 1
    bench.scheduler.resume()
    bench.run()
    assert list(bench.final) == ["late"]


@pytest.mark.parametrize("mode", ["keep", "wait", "abort"])
def test_aborts_work_while_paused(mode: str) -> None:
    bench = _busy()
    bench.scheduler.pause(mode)  # type: ignore[arg-type]
    bench.scheduler.abort()
    check_invariants(bench.scheduler)
    assert bench.scheduler.kv_cache.num_used == 0 and not bench.scheduler.has_unfinished
