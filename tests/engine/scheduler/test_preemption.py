"""When blocks run out: who is thrown out, that it comes back the same, and that something always moves on."""

from __future__ import annotations

import pytest

from engine.errors import EngineBug
from tests.engine.scheduler.rig import Bench, generation, make


def _events(bench: Bench, request_id: str) -> list[int]:
    request = bench.scheduler.find(request_id)
    assert request is not None
    return [event.type for event in request.events]


def test_the_youngest_of_the_lowest_priority_goes_first() -> None:
    bench = Bench(blocks=4, max_model_len=16)
    bench.add(
        make("low", [3] * 4, priority=1, arrival=0.0, max_tokens=9),
        make("old", [4] * 4, arrival=1.0, max_tokens=9),
        make("young", [5] * 4, arrival=2.0, max_tokens=9),
    )
    bench.step()
    step = bench.step()
    assert step.num_preempted == 1, "three need a second block, one is free"
    assert step.dropped == ["low"] and [row.request_id for row in step.rows] == ["old", "young"]
    assert _events(bench, "low") == [3]
    bench.run()
    assert bench.order == ["old", "young", "low"]
    for name, token in (("low", 3), ("old", 4), ("young", 5)):
        assert bench.tokens[name] == generation([token] * 4, 9)
        assert bench.finals[name] == 1


def test_a_request_gives_way_itself_when_it_is_the_last() -> None:
    bench = Bench(blocks=3)
    bench.add(make("a", [3] * 6, arrival=0.0, max_tokens=6), make("b", [4] * 4, arrival=1.0, max_tokens=6))
    bench.step()
    step = bench.step()
    assert [row.request_id for row in step.rows] == ["a"] and step.dropped == ["b"]
    assert bench.scheduler.make_stats(step).num_preempted == 1
    bench.run()
    assert bench.tokens == {"a": generation([3] * 6, 6), "b": generation([4] * 4, 6)}


def test_events_tell_of_it_with_the_next_output() -> None:
    bench = Bench(blocks=3)
    bench.add(make("a", [3] * 6, arrival=0.0, max_tokens=6), make("b", [4] * 4, arrival=1.0, max_tokens=6))
    seen: list[list[int]] = []
    while bench.scheduler.has_work:
        step = bench.scheduler.schedule()
        for output in bench.scheduler.update_from_output(step, bench.runner.execute(step)).get(0, []):
            if output.request_id == "b" and output.events:
                seen.append([event.type for event in output.events])
                assert (output.prefill_stats is not None) == (len(seen) == 1)
    assert seen == [[1, 2], [3, 2]]


def test_recompute_covers_the_output_so_far_and_may_hit_the_cache() -> None:
    bench = Bench(blocks=30)
    bench.add(make("a", list(range(2, 12)), max_tokens=12))
    for _ in range(6):
        bench.step()
    request = bench.scheduler.running[0]
    assert (request.num_tokens, request.num_computed_tokens) == (16, 15)
    bench.scheduler._book.preempt_last()
    step = bench.step()
    assert step.new_requests[0].token_ids == list(range(2, 12)) + generation(list(range(2, 12)), 6)
    assert step.new_requests[0].num_prompt_tokens == 10
    assert (step.rows[0].start, step.rows[0].num_tokens) == (12, 4)
    bench.run()
    assert bench.tokens["a"] == generation(list(range(2, 12)), 12)
    delta = bench.scheduler.make_stats().prefix_cache_stats
    assert (delta.preempted_requests, delta.preempted_queries, delta.preempted_hits) == (1, 16, 12)
    assert bench.first["a"].prefill_stats is not None and bench.first["a"].prefill_stats.num_cached_tokens == 0


def test_who_was_thrown_out_returns_only_when_somebody_ended() -> None:
    bench = Bench(blocks=20, max_model_len=40, caching=False)
    for number in range(6):
        bench.add(make(str(number), [number + 2] * 8, arrival=float(number), max_tokens=30))
    ended_at_last_return = 0
    while bench.scheduler.has_work:
        ended = len(bench.order)
        step = bench.step()
        if any(len(new.token_ids) > new.num_prompt_tokens for new in step.new_requests):
            assert ended > ended_at_last_return
            ended_at_last_return = ended
    assert bench.scheduler.counters.preemptions > 0 and ended_at_last_return > 0


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("budget", [8, 64])
def test_a_cache_for_one_and_a_half_requests_serves_eight_long_ones(caching: bool, budget: int) -> None:
    bench = Bench(blocks=15, max_model_len=40, budget=budget, caching=caching)
    for number in range(8):
        bench.add(make(str(number), [number + 2] * 10, arrival=float(number), max_tokens=30))
    silent = 0
    while bench.scheduler.has_work:
        before = sum(len(tokens) for tokens in bench.tokens.values())
        bench.step()
        silent = silent + 1 if sum(len(tokens) for tokens in bench.tokens.values()) == before else 0
        assert silent <= 40 // budget, "longer than one prefill"
    assert bench.scheduler.counters.preemptions > 0
    assert bench.order == [str(number) for number in range(8)]
    for number in range(8):
        assert bench.tokens[str(number)] == generation([number + 2] * 10, 30)


def test_an_only_request_that_cannot_grow_is_our_bug() -> None:
    bench = Bench(blocks=2)
    bench.add(make("a", [3] * 4, max_tokens=4))
    bench.step()
    bench.scheduler.kv_cache.take(1)
    with pytest.raises(EngineBug, match="holds all 2 KV blocks"):
        bench.scheduler.schedule()


def test_who_had_begun_goes_ahead_of_the_new() -> None:
    bench = Bench(blocks=4, max_model_len=16)
    bench.add(make("a", [3] * 8, arrival=0.0, max_tokens=3), make("b", [4] * 8, arrival=1.0, max_tokens=3))
    bench.step()
    bench.add(make("c", [5], arrival=2.0, max_tokens=1))
    step = bench.step()
    assert step.num_preempted == 1 and step.new_requests == []
    starts: list[str] = []
    while bench.scheduler.has_work:
        starts += [new.request_id for new in bench.step().new_requests]
    assert starts == ["b", "c"]
