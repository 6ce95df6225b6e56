"""Structs of the control protocol: figures of an engine and of its processes, as they stand in an EngineView.

As in enginectl.control: additive changes only, unknown keys are ignored, new fields have defaults."""

from __future__ import annotations

from msgspec import Struct, field


class SlowStep(Struct, kw_only=True):
    """A step that took a multiple of the usual."""

    step: int
    ms: float
    tokens: int = 0
    prefill_tokens: int = 0


class StepStats(Struct, kw_only=True):
    """Step times over the window, ms. `derived`: from output spacing, because the engine does not report them."""

    now_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    steps: int = 0
    window_s: float = 60.0
    schedule_ms: float | None = None
    execute_ms: float | None = None
    sample_ms: float | None = None
    update_ms: float | None = None
    idle_ms: float | None = None
    """Between two steps, while there was work."""
    observer_us: float | None = None
    """What one step pays for being watched: counters, figures and flight record."""
    slow: int = 0
    """Steps of the window that took a multiple of the usual."""
    last_slow: SlowStep | None = None
    derived: bool = False
    histogram: list[int] = []
    """Counts in the buckets of HISTOGRAM_MS plus one above the last."""
    recent_ms: list[float] = []
    """The youngest steps, oldest first, at most 120."""


HISTOGRAM_MS = (5.0, 10.0, 15.0, 20.0, 25.0, 40.0, 80.0, 160.0, 320.0, 640.0)


class Stats(Struct, kw_only=True):
    """Rates are over window_s and fall to 0 within one interval of idle. None: cannot be known for this engine."""

    window_s: float = 10.0
    running: int = 0
    waiting: int = 0
    skipped: int = 0
    kv_used_ratio: float | None = None
    kv_blocks: int | None = None
    kv_used_blocks: int | None = None
    prefix_hit_ratio: float | None = None
    decode_tok_s: float = 0.0
    prefill_tok_s: float = 0.0
    requests_in_s: float = 0.0
    preempted_per_min: float = 0.0
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p95_ms: float | None = None
    step: StepStats = field(default_factory=StepStats)
    step_counter: int = 0
    loop_counter: int | None = None
    loop_age_s: float | None = None
    """Since the loop was last seen to turn."""
    input_queue: int | None = None
    output_queue: int | None = None
    rejected_messages: int = 0
    dropped_outputs: int = 0
    finished_total: int = 0
    aborted_total: int = 0
    failed_total: int = 0
    tokens_total: int = 0
    history: dict[str, list[float]] = {}
    """One point a second, oldest first, at most 60: running, waiting, decode_tok_s, prefill_tok_s, kv_used_ratio,
    prefix_hit_ratio."""


class ProcessInfo(Struct, kw_only=True):
    pid: int
    start_time: float
    """Kernel start time, clock ticks since boot; with the boot id it says which process a pid was."""
    cpu_percent: float = 0.0
    rss_bytes: int = 0


class GpuInfo(Struct, kw_only=True):
    """One GPU that the engine uses, as its driver shows it; others may use it too."""

    index: int
    used_bytes: int
    total_bytes: int
    busy_ratio: float | None = None
    """0..1, of the last moments."""
