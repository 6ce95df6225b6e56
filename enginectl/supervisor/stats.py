"""Figures of a running engine: rates, step times, latencies, from the outputs that pass through.

The relay feeds it; it keeps bounded windows and answers with a Stats value. All times monotonic, so a clock that is
set back changes nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from engine.messages import (
    ABORTED_BY_OPERATOR,
    EngineCoreOutput,
    EngineCoreReadyResponse,
    FinishReason,
    SchedulerStats,
    StepTimings,
)
from enginectl.control_stats import HISTOGRAM_MS, Stats, StepStats
from enginectl.supervisor.inflight import Flight
from enginectl.supervisor.slow import SlowSteps
from enginectl.supervisor.totals import Totals
from enginectl.supervisor.window import Counter, Samples, percentile

RATE_WINDOW_S = 10.0
STEP_WINDOW_S = 60.0
RECENT = 120
HISTORY = 60
HISTORY_KEYS = ("running", "waiting", "decode_tok_s", "prefill_tok_s", "kv_used_ratio", "prefix_hit_ratio")


class StatsBook:
    """One engine run. `now` is passed in: tests have their own clock."""

    def __init__(self, ready: EngineCoreReadyResponse | None = None) -> None:
        self.ready = ready
        self.last = SchedulerStats()
        self.turned_at: float | None = None
        """When the loop was last seen to turn."""
        self.is_held = False
        """Paused or asleep: requests in flight are no work then."""
        self.decode = Counter(RATE_WINDOW_S)
        self.prefill = Counter(RATE_WINDOW_S)
        self.added = Counter(RATE_WINDOW_S)
        self.preempted = Counter(60.0)
        self.ttft = Samples(STEP_WINDOW_S)
        self.tpot = Samples(STEP_WINDOW_S)
        self.steps = Samples(STEP_WINDOW_S)
        self.slow = SlowSteps(STEP_WINDOW_S)
        self.step_tokens: deque[tuple[int, float]] = deque(maxlen=256)
        """(tokens, s) of the last steps."""
        self.decode_steps: deque[tuple[int, float]] = deque(maxlen=256)
        """(rows, s) of those that computed no prompt: a small prompt and a batch of as many tokens are not alike."""
        self.finished: dict[FinishReason, int] = {}
        self.tokens_total = 0
        self.totals = Totals()
        self.history: dict[str, deque[float]] = {key: deque(maxlen=HISTORY) for key in HISTORY_KEYS}
        self._timings: deque[tuple[float, StepTimings]] = deque(maxlen=1024)
        self._queries = self._hits = 0
        self._seen_prefix = (0, 0)
        self._judged_steps = 0
        self._is_derived = False
        self._told_at: float | None = None
        """When the engine last told a step's time itself."""
        self._spaced_at: float | None = None

    # ------------------------------------------------------------ what comes in

    def on_add(self, now: float) -> None:
        self.added.add(now, 1)

    def on_output(self, output: EngineCoreOutput, flight: Flight | None, was_at: float | None, now: float) -> None:
        """`was_at`: when this request's output before this one came, None for its first."""
        count = len(output.new_token_ids)
        self.tokens_total += count
        self.decode.add(now, count)
        if output.finish_reason is not None:
            reason = FinishReason(output.finish_reason)
            if output.stop_reason == ABORTED_BY_OPERATOR:  # its client hears ERROR; it is an abort all the same
                reason = FinishReason.ABORT
            self.finished[reason] = self.finished.get(reason, 0) + 1
            if flight is not None:
                self.totals.whole.add(now - flight.added_at)
        if flight is None or not count:
            return
        if was_at is None:
            self.ttft.add(now, now - flight.added_at)
            self.totals.ttft.add(now - flight.added_at)
            self.totals.prompt_tokens += flight.prompt_tokens
        else:
            self.tpot.add(now, (now - was_at) * 1000 / count)
            self.totals.token.add((now - was_at) / count, count)

    def on_step(self, stats: SchedulerStats, now: float) -> None:
        """The stats of one step, or of the moment when work ended."""
        is_new = is_uncounted(stats) or stats.step_counter != self.last.step_counter
        self.turned_at = now
        if is_new:
            self.prefill.add(now, stats.num_prefill_tokens)
            self.preempted.add(now, stats.num_preempted)
            self.totals.preemptions += stats.num_preempted
            self.totals.steps += 1
            self._queries += stats.prefix_cache_stats.queries
            self._hits += stats.prefix_cache_stats.hits
            self._on_step_time(stats, now)
        self.last = stats
        busy = stats.num_running_reqs or stats.num_waiting_reqs
        self._spaced_at = now if busy else None

    def _on_step_time(self, stats: SchedulerStats, now: float) -> None:
        timings, details = stats.step_timings, stats.iteration_details
        told_ms = details.elapsed_ms if details is not None else None
        if timings is not None or told_ms is not None:
            self._told_at = now
        self._is_derived = self._told_at is None or now - self._told_at > RATE_WINDOW_S
        tokens = stats.num_running_reqs
        if timings is None and told_ms is not None:
            step_ms = told_ms
        elif timings is not None:
            self._timings.append((now, timings))
            step_ms, tokens = timings.total_ms, stats.num_scheduled_tokens
        elif self._spaced_at is not None and self._is_derived:
            step_ms = (now - self._spaced_at) * 1000
        else:
            return
        self.steps.add(now, step_ms)
        self.totals.step.add(step_ms / 1000)
        self.step_tokens.append((tokens, step_ms / 1000))
        if tokens and not stats.num_prefill_tokens:
            self.decode_steps.append((tokens, step_ms / 1000))
        number = self.totals.steps if is_uncounted(stats) else stats.step_counter
        self.slow.add(now, number, step_ms, tokens, stats.num_prefill_tokens)

    @property
    def prefix_totals(self) -> tuple[int, int]:
        """(tokens looked up, tokens found) in the prefix cache."""
        return self._queries, self._hits

    def on_turn(self, now: float) -> None:
        """An answer that came through the loop."""
        self.turned_at = now

    def tick(self, now: float, running: int, waiting: int) -> None:
        """Once a second: whether it works, and a point of history."""
        is_busy = running + waiting > 0 and not self.is_held
        for counter in (self.decode, self.prefill, self.added):
            counter.settle(now, is_busy)
        stats = self.snapshot(now, running, waiting, with_steps=False)
        stats.prefix_hit_ratio = self._recent_hit_ratio()
        for key, points in self.history.items():
            points.append(float(getattr(stats, key) or 0.0))
        if self._judged_steps != self.totals.steps:
            self._judged_steps = self.totals.steps
            self.slow.set_usual(sorted(self.steps.values(now)))

    def _recent_hit_ratio(self) -> float:
        """Since the last point; as it was there when nothing was looked up."""
        (queries, hits), self._seen_prefix = self._seen_prefix, self.prefix_totals
        if self._queries > queries:
            return (self._hits - hits) / (self._queries - queries)
        points = self.history["prefix_hit_ratio"]
        return points[-1] if points else 0.0

    # ------------------------------------------------------------ what comes out

    def snapshot(self, now: float, running: int, waiting: int, *, with_steps: bool = True) -> Stats:
        last, blocks = self.last, self.ready.num_gpu_blocks if self.ready else None
        used = blocks - last.free_blocks if blocks is not None and last.free_blocks is not None else None
        if used is None and blocks is not None and self.turned_at is not None:
            used = round(last.kv_cache_usage * blocks)
        depths = last.queue_depths
        return Stats(
            window_s=RATE_WINDOW_S, running=running, waiting=waiting, skipped=last.num_skipped_waiting_reqs,
            kv_used_ratio=last.kv_cache_usage, kv_blocks=blocks, kv_used_blocks=used,
            prefix_hit_ratio=self._hits / self._queries if self._queries else None,
            decode_tok_s=self.decode.rate(now), prefill_tok_s=self.prefill.rate(now),
            requests_in_s=self.added.rate(now), preempted_per_min=float(self.preempted.total(now)),
            ttft_p50_s=self.ttft.percentile(now, 50), ttft_p95_s=self.ttft.percentile(now, 95),
            tpot_p50_ms=self.tpot.percentile(now, 50), tpot_p95_ms=self.tpot.percentile(now, 95),
            step=self.step_stats(now) if with_steps else StepStats(),
            step_counter=self.totals.steps if is_uncounted(last) else last.step_counter,
            loop_counter=last.loop_counter or None,
            loop_age_s=None if self.turned_at is None else now - self.turned_at,
            input_queue=depths.input_queue if depths else None, output_queue=depths.output_queue if depths else None,
            rejected_messages=last.rejected_messages, dropped_outputs=last.dropped_outputs,
            finished_total=self._ended(FinishReason.STOP, FinishReason.LENGTH, FinishReason.REPETITION),
            aborted_total=self._ended(FinishReason.ABORT), failed_total=self._ended(FinishReason.ERROR),
            tokens_total=self.tokens_total, history={key: list(points) for key, points in self.history.items()},
        )  # fmt: skip

    def _ended(self, *reasons: FinishReason) -> int:
        return sum(self.finished.get(reason, 0) for reason in reasons)

    def step_stats(self, now: float) -> StepStats:
        values = self.steps.values(now)
        if not values:
            return StepStats(window_s=STEP_WINDOW_S, derived=self._is_derived)
        ordered = sorted(values)
        parts = [timings for when, timings in self._timings if now - when < RATE_WINDOW_S] or [
            timings for _, timings in list(self._timings)[-1:]
        ]
        stats = StepStats(
            now_ms=values[-1], p50_ms=percentile(ordered, 50), p95_ms=percentile(ordered, 95),
            p99_ms=percentile(ordered, 99), max_ms=ordered[-1], steps=len(values), window_s=STEP_WINDOW_S,
            derived=self._is_derived, histogram=histogram(ordered), recent_ms=values[-RECENT:],
            slow=self.slow.count(now), last_slow=self.slow.last,
        )  # fmt: skip
        if parts:
            for name in ("schedule_ms", "execute_ms", "sample_ms", "update_ms", "idle_ms"):
                setattr(stats, name, mean([getattr(part, name) for part in parts]))
            observer_ms = mean([part.observe_ms for part in parts])
            stats.observer_us = None if observer_ms is None else observer_ms * 1000
        return stats


def mean(values: list[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def is_uncounted(stats: SchedulerStats) -> bool:
    """Of an engine that does not number its steps (vLLM without data parallel): each report is of a step."""
    return stats.step_counter == 0 and stats.step_timings is None


def histogram(ordered: list[float]) -> list[int]:
    """Counts per bucket of HISTOGRAM_MS, and one for what is above the last."""
    edges = [bisect_left(ordered, edge) for edge in HISTOGRAM_MS]
    return [high - low for low, high in zip([0, *edges], [*edges, len(ordered)], strict=True)]
