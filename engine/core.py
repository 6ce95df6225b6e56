"""EngineCore: one model, one scheduler, one executor; requests go in, outputs come out of step().

Knows no socket and no thread. `EngineCoreProc` puts it behind queues; `InprocClient` uses it as it is. Main thread
only, except preprocess_add_request, which reads limits that never change."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable, Iterable

from engine.admission import preprocess_add_request
from engine.capacity import plan_capacity
from engine.config import EngineConfig
from engine.executor import make_executor
from engine.executor.base import Executor
from engine.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    FinishReason,
    StepTimings,
)
from engine.scheduler.output import SchedulerOutput
from engine.scheduler.request import Request
from engine.scheduler.scheduler import PauseMode, Scheduler
from engine.scheduler.stats import FlightRecord
from engine.status import StatusReport

logger = logging.getLogger("engine")

Outputs = dict[int, list[EngineCoreOutput]]
"""By client index."""


class EngineCore:
    """Builds model, cache and scheduler, or raises ModelError or ConfigError; shutdown() gives everything back."""

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor | None = None,
        status: StatusReport | None = None,
        engine_index: int = 0,
    ) -> None:
        self.config = config
        self.engine_index = engine_index
        self.status = status or StatusReport()
        self.executor = executor or make_executor(config)
        self.started_at = time.monotonic()
        self.sleep_level = 0
        self.timings = StepTimings()
        self.step_began: float | None = None
        self.observe_ms = 0.0
        """What showing the state to others cost since the last step."""
        self._step_ended: float | None = None
        """None when there was no work since."""
        self.last_step = SchedulerOutput(0, [])
        try:
            self._build()
        except BaseException:
            self.executor.shutdown()
            raise
        gc.collect()
        gc.freeze()

    def _build(self) -> None:
        config, status = self.config, self.status
        status.begin("load weights")
        self.model = self.executor.load_model(status.progress)
        model = self.model
        kind = f"as {model.held_as} ({model.held_why})" if model.held_as else f"in memory, {model.dtype}"
        status.end("load weights", f"{model.weight_bytes / 1e6:,.0f} MB {kind}")
        status.begin("kv cache")
        self.capacity = plan_capacity(config, self.model, self.executor.measure_kv_memory())
        self.executor.initialize_cache(self.capacity.num_gpu_blocks)
        status.end("kv cache", f"{self.capacity.num_gpu_blocks:,} blocks of {config.block_size} tokens")
        self.scheduler = Scheduler(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=self.capacity.max_model_len,
            num_gpu_blocks=self.capacity.num_gpu_blocks,
            block_size=config.block_size,
            enable_prefix_caching=config.enable_prefix_caching,
        )
        self.flight_record = FlightRecord()
        status.begin("warm-up")
        self.executor.warm_up()
        status.end("warm-up")

    # ------------------------------------------------------------ what it is

    def ready_response(self) -> EngineCoreReadyResponse:
        capacity, config = self.capacity, self.config
        tokens = capacity.num_gpu_blocks * config.block_size
        return EngineCoreReadyResponse(
            max_model_len=capacity.max_model_len,
            num_gpu_blocks=capacity.num_gpu_blocks,
            block_size=config.block_size,
            dtype=self.model.dtype,
            kv_cache_size_tokens=tokens,
            kv_cache_max_concurrency=tokens / capacity.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            instance_id=f"{os.getpid()}-{time.time_ns()}",
            enable_sleep_mode=True,
            effective_attention_block_size=config.block_size,
        )

    # ------------------------------------------------------------ requests

    def preprocess_add_request(self, wire: EngineCoreRequest, seq: int = 0) -> Request:
        """Checks a request and builds what the scheduler keeps of it. Any thread. Raises RequestRefused."""
        return preprocess_add_request(
            wire,
            vocab_size=self.model.vocab_size,
            max_model_len=self.capacity.max_model_len,
            num_gpu_blocks=self.capacity.num_gpu_blocks,
            block_size=self.config.block_size,
            seq=seq,
        )

    def add_request(self, request: Request) -> None:
        """Raises RequestRefused when a live request has the same id; that one is untouched."""
        self.scheduler.add(request)

    def abort_requests(
        self,
        request_ids: Iterable[str] | None,
        *,
        before_seq: int | None = None,
        reason: FinishReason = FinishReason.ABORT,
        text: str | None = None,
        client_index: int | None = None,
    ) -> Outputs:
        """Ends live requests (None: all) and returns one final output for each; unknown ids are ignored."""
        outputs: Outputs = {}
        for index, output in self.scheduler.abort(
            request_ids, before_seq=before_seq, reason=reason, stop_reason=text, client_index=client_index
        ):
            outputs.setdefault(index, []).append(output)
        return outputs

    # ------------------------------------------------------------ the step

    def step(self, early_aborts: Callable[[], None] | None = None) -> Outputs:
        """schedule -> execute -> (aborts that arrived meanwhile) -> update. Empty when nothing could be scheduled."""
        began = time.perf_counter()
        step = self.last_step = self.scheduler.schedule()
        if not step.rows and not step.dropped:
            return {}
        self.step_began = time.monotonic()
        scheduled = time.perf_counter()
        ran = self.executor.execute_model(step)
        executed = time.perf_counter()
        if early_aborts is not None:
            early_aborts()
        outputs = self.scheduler.update_from_output(step, ran)
        ended = time.perf_counter()
        self.step_began = None
        idle_ms = observe_ms = None
        if self._step_ended is not None:
            idle_ms, observe_ms = (began - self._step_ended) * 1e3, self.observe_ms
        self.observe_ms, self._step_ended = 0.0, ended
        self.timings = StepTimings(
            schedule_ms=(scheduled - began) * 1e3,
            execute_ms=(executed - scheduled) * 1e3 - ran.sample_ms,
            sample_ms=ran.sample_ms,
            update_ms=(ended - executed) * 1e3,
            total_ms=(ended - began) * 1e3,
            idle_ms=idle_ms,
            observe_ms=observe_ms,
        )
        return outputs

    def rest(self) -> None:
        """Work has ended: the time until the next step is nobody's loss."""
        if self._step_ended is not None:
            self.executor.rest()
        self._step_ended, self.observe_ms = None, 0.0

    def as_messages(self, outputs: Outputs) -> dict[int, EngineCoreOutputs]:
        now = time.monotonic()
        return {
            client: EngineCoreOutputs(engine_index=self.engine_index, outputs=items, timestamp=now)
            for client, items in outputs.items()
        }

    # ------------------------------------------------------------ asked from outside, between steps

    def pause_scheduler(self, mode: PauseMode, clear_cache: bool) -> Outputs:
        """keep freezes what runs, wait lets it finish and holds the rest back, abort ends all. Idempotent."""
        outputs: Outputs = {}
        for client, output in self.scheduler.pause(mode):
            outputs.setdefault(client, []).append(output)
        if clear_cache and not self.scheduler.num_running:
            self.scheduler.reset_prefix_cache()
        return outputs

    def resume_scheduler(self) -> None:
        self.scheduler.resume()

    def sleep(self, level: int) -> None:
        """Gives the KV cache (1) and the weights (2) back. The caller has paused and emptied the scheduler."""
        self.scheduler.reset_prefix_cache()
        self.executor.sleep(level)
        self.sleep_level = level

    def wake_up(self) -> None:
        if self.sleep_level:
            self.executor.wake_up()
            self.sleep_level = 0

    def shutdown(self) -> None:
        """Frees the executor and lets the garbage collector see start-up objects again. Safe to call twice."""
        self.executor.shutdown()
        gc.unfreeze()
