"""Which tokens of which requests go through the model in the next step, and what comes of what it returns.

Requests enter by add(), each leaves with exactly one final output: from update_from_output(), abort() or pause().
Owned by the main loop; no lock, no thread, no socket, no tensor. Dies with the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from engine.messages import EngineCoreOutput, FinishReason, PrefillStats, SchedulerStats
from engine.reports import EngineStats, RequestTable
from engine.scheduler.book import RequestBook
from engine.scheduler.kv_cache import KVCacheManager
from engine.scheduler.output import ModelRunnerOutput, NewRequest, SchedulerOutput
from engine.scheduler.request import Request, RequestStatus
from engine.scheduler.table import TableMaker

PauseMode: TypeAlias = Literal["keep", "wait", "abort"]
FinalOutput: TypeAlias = tuple[int, EngineCoreOutput]
"""(client index, the last output of a request)"""
_RUNNING = RequestStatus.RUNNING


class Scheduler:
    """Each running request gets at least one token of every step, and the first of the order is never preempted, so
    something always ends."""

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        num_gpu_blocks: int,
        block_size: int,
        enable_prefix_caching: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_num_seqs = min(max_num_seqs, max_num_batched_tokens)
        """Effective: each running request needs a token of the step."""
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_model_len = min(max_model_len, num_gpu_blocks * block_size)
        """Effective: what the cache can hold."""
        self.kv_cache = KVCacheManager(num_gpu_blocks, block_size, enable_prefix_caching=enable_prefix_caching)
        self._book = book = RequestBook(self.kv_cache, self.max_model_len, clock)
        self._live = book.live
        self.running, self.waiting, self.counters = book.running, book.waiting, book.counters
        self.pause_mode: PauseMode | None = None
        self.step = 0
        self._clock = clock
        self._scheduled: list[Request] = []
        """Whose rows the step in progress has, row by row."""
        self._tables = TableMaker(self.running, self.waiting, self.kv_cache, self.max_num_seqs)

    # ------------------------------------------------------------ questions

    @property
    def num_running(self) -> int:
        return len(self.running)

    @property
    def num_waiting(self) -> int:
        """New and preempted."""
        return len(self.waiting)

    @property
    def num_begun(self) -> int:
        """Running and preempted: what a pause in mode wait waits for."""
        return len(self.running) + len(self.waiting.preempted)

    @property
    def num_unfinished(self) -> int:
        """Live, in whatever state."""
        return len(self._live)

    @property
    def has_unfinished(self) -> bool:
        return bool(self._live)

    @property
    def may_schedule(self) -> bool:
        return self.pause_mode is None or self.pause_mode == "wait"

    @property
    def has_work(self) -> bool:
        """The next schedule() will have rows."""
        if self.pause_mode is None:
            return bool(self._live)
        return self.pause_mode == "wait" and self.num_begun > 0

    def max_request_tokens(self) -> int:
        """Prompt and output of one request may never be more; a prompt must leave room for one token."""
        return self.max_model_len

    def find(self, request_id: str) -> Request | None:
        """The live request with this id."""
        return self._live.get(request_id)

    # ------------------------------------------------------------ a request's life

    def add(self, request: Request) -> None:
        """Raises RequestRefused for an id that is live (the first stays untouched) or a prompt that can never fit."""
        self._book.add(request)

    def abort(
        self,
        ids: Iterable[str] | None = None,
        *,
        before_seq: int | None = None,
        reason: FinishReason = FinishReason.ABORT,
        stop_reason: str | None = None,
        client_index: int | None = None,
    ) -> list[FinalOutput]:
        """Ends those of `ids` (None: all) that live, were admitted before `before_seq` and belong to `client_index`."""
        wanted = list(self._live) if ids is None else ids
        ended = []
        for request_id in wanted:
            request = self._live.get(request_id)
            if request is None or (before_seq is not None and request.admitted_seq >= before_seq):
                continue
            if client_index is None or request.client_index == client_index:
                ended.append((request.client_index, self._end(request, reason, stop_reason)))
        self._book.sweep()
        return ended

    def pause(self, mode: PauseMode) -> list[FinalOutput]:
        """keep: nothing more runs. wait: what has begun runs on. abort: all are aborted, what comes later waits."""
        ended = self.abort() if mode == "abort" else []
        self.pause_mode = mode
        return ended

    def resume(self) -> None:
        self.pause_mode = None

    def reset_prefix_cache(self, *, reset_running: bool = False) -> bool:
        """Forgets what is cached. False, and nothing done, while blocks are used; `reset_running` preempts them."""
        while reset_running and self.running:
            self._book.preempt_last()
        done = self.kv_cache.reset_prefix_cache()
        if done:
            self.counters.prefix_delta.reset = True
        return done

    # ------------------------------------------------------------ schedule

    def schedule(self) -> SchedulerOutput:
        """The next step. Valid until the next call: rows are reused."""
        self.step += 1
        self._scheduled = []
        step = SchedulerOutput(self.step, [])
        if self.may_schedule:
            preempted_before = self.counters.preemptions
            budget = self._schedule_waiting(step, self._schedule_running(step))
            step.num_preempted = self.counters.preemptions - preempted_before
            step.num_tokens = self.max_num_batched_tokens - budget
            step.first_unused_block = self.kv_cache.first_unused
        step.dropped = self._book.take_dropped()
        return step

    def _schedule_running(self, step: SchedulerOutput) -> int:
        """In order, so whoever is preempted has no row yet. Returns the budget that is left, tokens."""
        budget = self.max_num_batched_tokens
        behind = len(self.running)
        rows, scheduled = step.rows, self._scheduled
        for request in self.running:
            behind -= 1
            row = request.row
            if row.new_block_ids:
                row.new_block_ids = []
            if request.num_tokens > request.room and not self._book.grow(request):
                break
            start = request.num_computed_tokens
            number = request.num_tokens - start
            if number > 1 or not row.samples:  # a prefill that its last step did not end
                number = _fill_prefill_row(request, budget - behind, step)
            else:
                row.start, row.num_tokens, row.samples = start, 1, True
            budget -= number
            rows.append(row)
            scheduled.append(request)
        return budget

    def _schedule_waiting(self, step: SchedulerOutput, budget: int) -> int:
        """In strict order: the first that does not fit holds the others back, so nobody starves."""
        begun_only = self.pause_mode == "wait"
        while budget > 0 and len(self.running) < self.max_num_seqs:
            request = self.waiting.peek(begun_only=begun_only)
            if request is None or not self._book.start(request):
                break
            number = _fill_prefill_row(request, budget, step)
            self.counters.chunked_prefills += not request.row.samples
            budget -= number
            step.rows.append(request.row)
            step.new_requests.append(_introduce(request))
            self._scheduled.append(request)
        return budget

    # ------------------------------------------------------------ update

    def update_from_output(self, step: SchedulerOutput, result: ModelRunnerOutput) -> dict[int, list[EngineCoreOutput]]:
        """Outputs by client index. A request that ended or was preempted since schedule() is skipped."""
        outputs: dict[int, list[EngineCoreOutput]] = {}
        special = bool(result.errors or result.logprobs or result.prompt_logprobs)
        num_ended = num_sampled = 0
        for request, row, token in zip(self._scheduled, step.rows, result.sampled, strict=True):
            if request.status is not _RUNNING:
                continue
            if (row.samples and token < 0) or (special and request.request_id in result.errors):
                text = result.errors.get(request.request_id, "the model gave no token for this request")
                output = self._end(request, FinishReason.ERROR, text)
                num_ended += 1
            else:
                computed = request.num_computed_tokens = row.start + row.num_tokens
                if not row.samples:
                    if computed >= request.publish_at:
                        self._book.publish(request)
                    continue
                num_sampled += 1
                request.output_token_ids.append(token)
                request.num_tokens += 1
                if computed >= request.publish_at:
                    self._book.publish(request)
                output = EngineCoreOutput(request.request_id, [token])
                if special:
                    self._attach_logprobs(request, output, result)
                if request.events:
                    self._attach_start(request, output)
                if token in request.stops or request.num_tokens >= request.length_limit:
                    num_ended += self._finish(request, output, token)
            if request.client_index in outputs:
                outputs[request.client_index].append(output)
            else:
                outputs[request.client_index] = [output]
        self.counters.output_tokens += num_sampled
        self._scheduled = []
        if num_ended:
            self._book.sweep()
        return outputs

    def _attach_logprobs(self, request: Request, output: EngineCoreOutput, result: ModelRunnerOutput) -> None:
        output.new_logprobs = result.logprobs.get(request.request_id)
        if request.needs_prompt_logprobs and request.request_id in result.prompt_logprobs:
            output.new_prompt_logprobs = result.prompt_logprobs[request.request_id]
            request.needs_prompt_logprobs = False

    def _attach_start(self, request: Request, output: EngineCoreOutput) -> None:
        """The first output after a start carries what happened since the last one."""
        output.events, request.events = request.events, []
        if request.num_output_tokens > 1:
            return
        cached = request.num_cached_tokens
        self.counters.prompt_tokens += request.num_prompt_tokens
        output.prefill_stats = PrefillStats(
            num_prompt_tokens=request.num_prompt_tokens,
            num_computed_tokens=request.num_prompt_tokens - cached,
            num_cached_tokens=cached,
            num_local_cached_tokens=cached,
        )

    def _finish(self, request: Request, output: EngineCoreOutput, token: int) -> bool:
        """Ends it when `token` does; False when min_tokens keeps it going."""
        ending = request.finish_by(token)
        if ending is None:
            return False
        self._book.retire(request, ending[0])
        output.finish_reason, output.stop_reason = int(ending[0]), ending[1]
        return True

    # ------------------------------------------------------------ ends

    def _end(self, request: Request, reason: FinishReason, stop_reason: str | None) -> EngineCoreOutput:
        self._book.retire(request, reason)
        return EngineCoreOutput(
            request.request_id, [], finish_reason=int(reason), stop_reason=stop_reason, events=request.events or None
        )

    # ------------------------------------------------------------ what others see

    def make_stats(self, step: SchedulerOutput | None = None) -> SchedulerStats:
        """State now, and of `step`. Takes the prefix cache's delta: call it once per report."""
        stats = SchedulerStats(
            num_running_reqs=len(self.running),
            num_waiting_reqs=len(self.waiting),
            step_counter=self.step,
            kv_cache_usage=self.kv_cache.usage,
            prefix_cache_stats=self.counters.take_prefix_delta(),
            free_blocks=self.kv_cache.num_free,
        )
        if step is not None:
            stats.num_scheduled_tokens = step.num_tokens
            stats.num_prefill_tokens = step.num_prefill_tokens
            stats.num_preempted = step.num_preempted
        return stats

    def fill_engine_stats(self, stats: EngineStats) -> None:
        """Writes the fields that are the scheduler's; the rest stays as it is."""
        counters = self.counters
        stats.paused = self.pause_mode
        stats.step_counter = self.step
        stats.running, stats.waiting = len(self.running), len(self.waiting)
        stats.num_gpu_blocks = self.kv_cache.num_blocks
        stats.free_blocks, stats.cached_blocks = self.kv_cache.num_free, self.kv_cache.num_cached
        stats.preemptions, stats.chunked_prefills = counters.preemptions, counters.chunked_prefills
        stats.prefix_queries, stats.prefix_hits = counters.prefix_queries, counters.prefix_hits
        stats.prompt_tokens, stats.output_tokens = counters.prompt_tokens, counters.output_tokens
        stats.finished = dict(counters.finished)

    def requests_table(self, limit: int = 1000) -> RequestTable:
        return self._tables.table(
            limit, self._clock(), running_paused=not self.may_schedule, waiting_paused=self.pause_mode is not None
        )


def _fill_prefill_row(request: Request, budget: int, step: SchedulerOutput) -> int:
    """Returns the tokens it takes: all that are left, or as many as the budget allows."""
    start = request.num_computed_tokens
    number = min(request.num_tokens - start, budget)
    row = request.row
    row.start, row.num_tokens, row.samples = start, number, start + number == request.num_tokens
    step.num_prefill_tokens += number
    return number


def _introduce(request: Request) -> NewRequest:
    return NewRequest(
        request.request_id,
        request.known_token_ids(),
        request.num_prompt_tokens,
        list(request.block_ids),
        request.sampling_params,
        request.needs_prompt_logprobs,
    )
