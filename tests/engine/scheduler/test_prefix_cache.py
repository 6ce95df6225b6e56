"""Prefix hits through the whole scheduler: what is shared, what is not, and that the tokens stay the same."""

from __future__ import annotations

import pytest

from engine.messages import FinishReason
from tests.engine.scheduler.rig import BLOCK, Bench, generation, make

PROMPT = list(range(2, 2 + 3 * BLOCK))


def _warm(**settings: int | bool) -> Bench:
    bench = Bench(**settings)
    bench.add(make("warm", [*PROMPT, 40], max_tokens=1))
    bench.run()
    bench.scheduler.counters.take_prefix_delta()
    return bench


def test_a_second_prompt_computes_only_what_is_new() -> None:
    bench = _warm()
    bench.add(make("a", [*PROMPT, 30, 31], max_tokens=5))
    step = bench.step()
    assert (step.rows[0].start, step.rows[0].num_tokens) == (12, 2)
    stats = bench.first["a"].prefill_stats
    assert stats is not None
    assert (stats.num_prompt_tokens, stats.num_cached_tokens, stats.num_computed_tokens) == (14, 12, 2)
    assert stats.num_local_cached_tokens == 12
    bench.run()
    assert bench.tokens["a"] == generation([*PROMPT, 30, 31], 5)
    delta = bench.scheduler.make_stats().prefix_cache_stats
    assert (delta.requests, delta.queries, delta.hits) == (1, 14, 12)
    assert bench.scheduler.make_stats().prefix_cache_stats.queries == 0, "a delta is taken once"
    assert bench.scheduler.counters.prefix_hits == 12


@pytest.mark.parametrize(("length", "cached"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8)])
def test_the_last_token_is_always_computed(length: int, cached: int) -> None:
    bench = _warm()
    bench.add(make("a", PROMPT[:length], max_tokens=4))
    step = bench.step()
    assert (step.rows[0].start, step.rows[0].num_tokens, step.rows[0].samples) == (cached, length - cached, True)
    bench.run()
    assert bench.tokens["a"] == generation(PROMPT[:length], 4)


def test_output_blocks_are_shared_too() -> None:
    bench = Bench()
    bench.add(make("a", PROMPT, max_tokens=9))
    bench.run()
    follow_up = PROMPT + bench.tokens["a"] + [33]
    bench.add(make("b", follow_up, max_tokens=3))
    assert bench.step().rows[0].start == 20, "12 of the prompt, 8 of the output; the last token was never computed"
    bench.run()
    assert bench.tokens["b"] == generation(follow_up, 3)


def test_running_requests_share_blocks() -> None:
    bench = _warm()
    bench.add(make("a", [*PROMPT, 30], max_tokens=8), make("b", [*PROMPT, 31], max_tokens=8))
    bench.step()
    assert bench.scheduler.kv_cache.num_used == 3 + 1 + 1
    a, b = bench.scheduler.running
    assert a.block_ids[:3] == b.block_ids[:3] and a.block_ids[3] != b.block_ids[3]
    bench.run()
    assert bench.tokens["a"] == generation([*PROMPT, 30], 8)
    assert bench.tokens["b"] == generation([*PROMPT, 31], 8)
    assert bench.scheduler.kv_cache.num_used == 0


def test_twins_in_one_step_do_not_read_what_is_not_computed_yet() -> None:
    bench = Bench()
    bench.add(make("a", [*PROMPT, 30], max_tokens=4), make("b", [*PROMPT, 30], max_tokens=4))
    assert [row.start for row in bench.step().rows] == [0, 0]
    bench.run()
    assert bench.tokens["a"] == bench.tokens["b"] == generation([*PROMPT, 30], 4)


def test_a_chunk_is_found_as_soon_as_it_is_computed() -> None:
    bench = Bench(budget=8)
    bench.add(make("a", [*PROMPT, 30], max_tokens=4, arrival=0.0))
    bench.step()
    bench.add(make("b", [*PROMPT, 30], max_tokens=4, arrival=1.0))
    step = bench.step()
    assert [(row.request_id, row.start) for row in step.rows] == [("a", 8), ("b", 8)]
    bench.run()
    assert bench.tokens["b"] == generation([*PROMPT, 30], 4)


@pytest.mark.parametrize("fields", [{"salt": "other"}, {"prompt_logprobs": 1}, {"skip_reading_prefix_cache": True}])
def test_who_may_not_read_computes_everything(fields: dict[str, object]) -> None:
    bench = _warm()
    bench.add(make("a", [*PROMPT, 30], max_tokens=3, **fields))
    assert bench.step().rows[0].start == 0
    bench.run()
    assert bench.tokens["a"] == generation([*PROMPT, 30], 3)


def test_the_same_salt_shares() -> None:
    bench = Bench()
    for name in ("a", "b"):
        bench.add(make(name, [*PROMPT, 30], max_tokens=1, salt="mine"))
        bench.run()
    assert bench.scheduler.counters.prefix_hits == 12


def test_switched_off_nothing_is_found_or_counted() -> None:
    bench = _warm(caching=False)
    bench.add(make("a", [*PROMPT, 30], max_tokens=9))
    assert bench.step().rows[0].start == 0
    bench.run()
    assert bench.scheduler.counters.prefix_queries == 0 and bench.scheduler.kv_cache.num_cached == 0


def test_a_failed_request_publishes_nothing() -> None:
    bench = Bench()
    bench.runner.fails = {"a"}
    bench.add(make("a", PROMPT))
    bench.run()
    assert bench.final["a"].finish_reason == FinishReason.ERROR
    assert bench.scheduler.kv_cache.num_cached == 0


def test_eviction_takes_the_oldest_chain_from_its_tail() -> None:
    bench = Bench(blocks=8)
    for name, token in (("old", 5), ("new", 6)):
        bench.add(make(name, [token] * 13, max_tokens=1))
        bench.run()
    bench.add(make("third", [7] * 12, max_tokens=1))
    bench.run()
    bench.add(make("a", [6] * 13, max_tokens=1), make("b", [5] * 13, max_tokens=1, arrival=1.0))
    rows = bench.step().rows
    assert rows[0].start == 12, "the newer chain is whole"
    bench.run()
    assert rows[0].request_id == "a" and len(bench.final) == 5


def test_reset_forgets_but_not_under_running_requests_unless_asked() -> None:
    bench = _warm()
    bench.add(make("a", [*PROMPT, 30], max_tokens=20))
    bench.step()
    bench.scheduler.make_stats()
    assert not bench.scheduler.reset_prefix_cache()
    assert bench.scheduler.kv_cache.num_cached > 0
    assert not bench.scheduler.make_stats().prefix_cache_stats.reset
    assert bench.scheduler.reset_prefix_cache(reset_running=True)
    assert bench.scheduler.make_stats().prefix_cache_stats.reset
    assert bench.scheduler.kv_cache.num_cached == 0 and bench.scheduler.num_running == 0
    step = bench.step()
    assert step.dropped == ["a"]
    assert step.rows[0].start == 0 and step.rows[0].num_tokens == 14
    bench.run()
    assert bench.tokens["a"] == generation([*PROMPT, 30], 20)
    assert bench.scheduler.reset_prefix_cache()
