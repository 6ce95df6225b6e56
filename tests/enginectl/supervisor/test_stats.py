"""Figures from outputs, on a clock of the test's own."""

from __future__ import annotations

import pytest

from engine.messages import EngineCoreOutput, EngineCoreReadyResponse, PrefixCacheStats, SchedulerStats, StepTimings
from enginectl.supervisor.stats import StatsBook, histogram
from enginectl.supervisor.window import Counter, Samples, percentile

READY = EngineCoreReadyResponse(max_model_len=64, num_gpu_blocks=100, block_size=16, dtype="float32")


def step(number: int, total_ms: float | None = 20.0, **more: object) -> SchedulerStats:
    timings = None if total_ms is None else StepTimings(total_ms=total_ms, execute_ms=total_ms * 0.9)
    stats = SchedulerStats(num_running_reqs=1, step_counter=number, step_timings=timings)
    for key, value in more.items():
        setattr(stats, key, value)
    return stats


def test_a_rate_is_right_while_busy_and_zero_one_interval_after() -> None:
    counter = Counter(10.0)
    for tick in range(300):
        counter.add(tick * 0.1, 10)
    assert counter.rate(30.0) == pytest.approx(100, rel=0.05)
    counter.settle(30.5, is_busy=False)
    assert counter.rate(30.5) > 0
    counter.settle(31.5, is_busy=False)
    assert counter.rate(31.5) == 0.0


def test_looking_at_a_rate_changes_nothing() -> None:
    """Whoever asks, and whatever they know of the work: only the tick says that it is over."""
    counter = Counter(10.0)
    counter.add(1.0, 100)
    assert [counter.rate(3.0), counter.total(30.0), counter.rate(30.0), counter.rate(3.0)] == [50.0, 0.0, 0.0, 50.0]
    counter.settle(3.0, is_busy=True)
    assert counter.rate(3.0) == 50.0


def test_a_short_burst_is_a_rate_of_its_own_time() -> None:
    counter = Counter(10.0)
    for tick in range(20):
        counter.add(5 + tick * 0.1, 5)
    assert counter.rate(7.0) == pytest.approx(50, rel=0.1)


@pytest.mark.parametrize("pause_s", [1.5, 5.0, 500.0])
def test_after_a_pause_a_burst_is_neither_thinned_by_it_nor_given_what_came_before(pause_s: float) -> None:
    counter = Counter(10.0)
    for tick in range(100):
        counter.add(tick * 0.1, 100)
    counter.settle(9.9 + pause_s, is_busy=False)
    assert counter.rate(9.9 + pause_s) == 0.0
    counter.add(10.0 + pause_s, 5)
    assert counter.rate(10.1 + pause_s) == 5.0


def test_what_piled_up_while_nobody_read_is_no_burst() -> None:
    counter = Counter(10.0)
    counter.add(1.0, 100)
    assert counter.rate(1.5) == 100.0
    counter.add(61.0, 6000)  # the reader was stopped for a minute
    assert counter.rate(61.1) == 600.0


def test_windows_forget_and_are_bounded() -> None:
    samples = Samples(60.0)
    for number in range(20_000):
        samples.add(number * 0.001, number)
    assert len(samples.values(20.0)) == 8192
    assert samples.values(100.0) == []
    assert samples.percentile(100.0, 50) is None


@pytest.mark.parametrize(("share", "value"), [(50, 50), (95, 95), (99, 99), (100, 100), (0, 1)])
def test_percentiles_are_nearest_rank(share: float, value: float) -> None:
    assert percentile([float(n) for n in range(1, 101)], share) == value


def test_step_times_are_the_engines_own() -> None:
    book = StatsBook(READY)
    for number in range(1, 101):
        book.on_step(step(number, float(number)), number * 0.1)
    seen = book.step_stats(10.0)
    assert (seen.steps, seen.now_ms, seen.p50_ms, seen.p95_ms, seen.max_ms) == (100, 100, 50, 95, 100)
    assert not seen.derived and sum(seen.histogram) == 100
    assert seen.execute_ms == pytest.approx(0.9 * 50.5, rel=0.02)


def test_the_same_step_reported_twice_counts_once() -> None:
    book = StatsBook(READY)
    for _ in range(3):
        book.on_step(step(1, num_prefill_tokens=50), 1.0)
    assert book.step_stats(1.0).steps == 1


def test_without_timings_spacing_is_used_and_marked() -> None:
    book = StatsBook(READY)
    for number in range(1, 6):
        book.on_step(step(number, None), number * 0.02)
    seen = book.step_stats(0.2)
    assert seen.derived and seen.steps == 4 and seen.p50_ms == pytest.approx(20.0)


def test_blocks_hits_and_tokens_add_up() -> None:
    book = StatsBook(READY)
    prefix = PrefixCacheStats(queries=100, hits=40)
    book.on_step(step(1, free_blocks=60, kv_cache_usage=0.4, prefix_cache_stats=prefix, num_prefill_tokens=100), 1.0)
    book.on_output(EngineCoreOutput("a", [1, 2, 3]), None, None, 1.0)
    stats = book.snapshot(1.0, 1, 2)
    assert (stats.kv_used_blocks, stats.kv_blocks, stats.prefix_hit_ratio) == (40, 100, 0.4)
    assert (stats.running, stats.waiting, stats.tokens_total) == (1, 2, 3)
    assert stats.prefill_tok_s > 0 and stats.decode_tok_s == 3.0


def test_history_is_one_point_a_tick_and_bounded() -> None:
    book = StatsBook(READY)
    for second in range(100):
        book.tick(float(second), second, 0)
    assert book.snapshot(100.0, 0, 0).history["running"] == [float(n) for n in range(40, 100)]


def test_what_is_paused_is_no_work_for_a_rate() -> None:
    book = StatsBook(READY)
    book.on_output(EngineCoreOutput("a", [1, 2, 3]), None, None, 1.0)
    book.tick(3.0, 1, 0)
    assert book.snapshot(3.0, 1, 0).decode_tok_s == 1.5
    book.is_held = True
    book.tick(3.0, 1, 0)
    assert book.snapshot(3.0, 1, 0).decode_tok_s == 0.0


def test_buckets_count_everything() -> None:
    assert histogram([1.0, 5.0, 5.1, 30.0, 9999.0]) == [1, 2, 0, 0, 0, 1, 0, 0, 0, 0, 1]


def test_steps_without_a_number_are_timed_by_their_spacing() -> None:
    book = StatsBook()
    for turn in range(5):
        book.on_step(SchedulerStats(num_running_reqs=2), 10.0 + turn * 0.05)
    found = book.snapshot(10.3, 2, 0)
    assert found.step.derived and found.step.steps == 4
    assert 49.0 < (found.step.p50_ms or 0) < 51.0
    assert found.step_counter == 5


def test_idle_and_observer_are_means_of_what_the_engine_told() -> None:
    book = StatsBook(READY)
    told = StepTimings(total_ms=20.0, idle_ms=None, observe_ms=0.030)
    book.on_step(step(1, step_timings=told), 0.1)
    assert book.step_stats(0.1).idle_ms is None
    for number, idle_ms in ((2, 0.1), (3, 0.3)):
        book.on_step(step(number, step_timings=StepTimings(idle_ms=idle_ms, observe_ms=0.042)), number * 0.1)
    seen = book.step_stats(0.3)
    assert seen.idle_ms == pytest.approx(0.2)
    assert seen.observer_us == pytest.approx(38.0)
    older = StatsBook(READY)
    older.on_step(step(1), 0.1)
    assert (older.step_stats(0.1).idle_ms, older.step_stats(0.1).observer_us) == (None, None)


def test_slow_steps_are_counted_and_the_last_is_kept() -> None:
    book = StatsBook(READY)
    for number in range(1, 31):
        book.on_step(step(number, 20.0), number * 0.1)
    book.tick(3.0, 1, 0)
    book.on_step(step(31, 90.0, num_scheduled_tokens=8193, num_prefill_tokens=8192), 3.1)
    seen = book.step_stats(3.1)
    assert seen.last_slow is not None
    assert (seen.slow, seen.last_slow.step, seen.last_slow.prefill_tokens) == (1, 31, 8192)
    assert book.step_stats(3.1 + 61).last_slow is None


def test_the_hit_ratio_of_history_is_of_each_moment() -> None:
    book = StatsBook(READY)
    book.on_step(step(1, prefix_cache_stats=PrefixCacheStats(queries=100, hits=0)), 0.5)
    book.tick(1.0, 1, 0)
    book.on_step(step(2, prefix_cache_stats=PrefixCacheStats(queries=100, hits=80)), 1.5)
    book.tick(2.0, 1, 0)
    book.tick(3.0, 1, 0)
    stats = book.snapshot(3.0, 1, 0)
    assert stats.history["prefix_hit_ratio"] == [0.0, 0.8, 0.8]
    assert stats.prefix_hit_ratio == 0.4
