"""What the loop publishes for everybody who looks in from another thread: frozen values, replaced, never changed.

Counters each turn of the loop, and before the outputs and answers that belong to them go; the request table once for
each question, at most every TABLE_EVERY_S."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from engine import __version__
from engine.reports import EngineDescription, EngineStats, RequestTable
from engine.rpc import UTILITIES

if TYPE_CHECKING:
    from engine.proc import EngineCoreProc

TABLE_EVERY_S = 0.1
TABLE_LIMIT = 1000


class Published:
    """Written by the main loop, except `table_wanted`, which a reader sets and the next table clears."""

    def __init__(self, stats: EngineStats) -> None:
        self.stats = stats
        self.turned_at = time.monotonic()
        self.table = RequestTable(items=[], total=0)
        self.table_at = 0.0
        self.table_wanted = False


def publish(engine: EngineCoreProc) -> None:
    """The state of this moment. Main loop only; a few microseconds."""
    published, now = engine.published, time.monotonic()
    published.stats = _stats(engine)
    published.turned_at = now
    if published.table_wanted and now - published.table_at >= TABLE_EVERY_S:
        publish_table(engine)


def publish_table(engine: EngineCoreProc) -> None:
    published = engine.published
    published.table_wanted = False
    published.table = engine.scheduler.requests_table(TABLE_LIMIT)
    published.table_at = time.monotonic()


def current_stats(engine: EngineCoreProc) -> EngineStats:
    """The published counters with the ages of this moment. Any thread."""
    now, began = time.monotonic(), engine.step_began
    return msgspec.structs.replace(
        engine.published.stats,
        uptime_s=now - engine.started_at,
        last_turn_age_s=now - engine.published.turned_at,
        step_running_s=None if began is None else now - began,
        step_tokens=engine.last_step.num_tokens,
        refused_requests=engine.counters.refused_requests,
        rejected_messages=engine.counters.rejected_messages,
        dropped_outputs=engine.counters.dropped_outputs,
        pending_bytes=engine.counters.pending_bytes,
        input_queue=engine.input_queue.qsize(),
        output_queue=engine.output_queue.qsize(),
    )


def _stats(engine: EngineCoreProc) -> EngineStats:
    stats = EngineStats(
        phase=engine.lifecycle.phase.value,
        sleeping=engine.sleep_level > 0,
        loop_counter=engine.loop_counter,
        step_timings=engine.timings,
    )
    engine.scheduler.fill_engine_stats(stats)
    return stats


def describe(engine: EngineCoreProc) -> EngineDescription:
    config, model = engine.config, engine.model
    return EngineDescription(
        version=__version__,
        pid=os.getpid(),
        phase=engine.lifecycle.phase.value,
        model=config.model,
        architecture=model.architecture,
        executor=config.executor,
        device=model.device,
        dtype=model.dtype,
        compute_dtype=model.compute_dtype,
        threads=config.threads or len(os.sched_getaffinity(0)),
        quantization=config.quantization,
        kernels=engine.executor.kernels,
        asked=msgspec.to_builtins(config),
        ready=engine.ready,
        weight_bytes=model.weight_bytes,
        kv_bytes_per_block=model.kv_bytes_per_block,
        utilities=[UTILITIES[name].info() for name in sorted(UTILITIES)],
    )
