"""What our own utilities answer: `describe`, `stats`, `requests`. Structs only, no socket, no bytes, never a token.

They travel as maps inside a UtilityResult: a reader ignores keys it does not know and takes defaults for missing ones,
so a field is added freely and never renamed. A foreign engine has none of them."""

from __future__ import annotations

from msgspec import Raw, Struct

from engine.messages import NIL, EngineCoreReadyResponse, StepTimings


class UtilityInfo(Struct, kw_only=True):
    """One row of the utility table, as `describe` and `enginectl call --list` show it."""

    name: str
    args: list[ArgInfo] = []
    lane: str = "loop"
    """loop: runs between steps. instant: answered at once from the last snapshot."""
    phases: list[str] = []
    effect: str = "reads"
    """reads, changes, or unsafe (needs allow_unsafe_calls)."""
    summary: str = ""


class ArgInfo(Struct, kw_only=True):
    name: str
    type: str
    default: Raw = NIL
    required: bool = False
    choices: list[str] = []


class EngineDescription(Struct, kw_only=True):
    """`describe`: what this engine is, asked and effective."""

    version: str
    pid: int
    phase: str
    model: str
    architecture: str
    executor: str
    device: str
    dtype: str
    compute_dtype: str
    threads: int
    quantization: str = "none"
    """What the weights were rounded to at load: none, int8 or int4."""
    kernels: str = ""
    """Which code computes the steps: eager, building or native, and why."""
    asked: dict[str, str | int | float | bool | None] = {}
    ready: EngineCoreReadyResponse
    weight_bytes: int = 0
    kv_bytes_per_block: int = 0
    utilities: list[UtilityInfo] = []


class RequestInfo(Struct, kw_only=True):
    """`requests`: one request in flight as the scheduler sees it. Never its tokens."""

    id: str
    external_id: str | None = None
    state: str = "waiting"
    """waiting, running or preempted"""
    age_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    max_tokens: int = 0
    """Effective: cut to what max_model_len leaves."""
    computed_tokens: int = 0
    cached_tokens: int = 0
    blocks: int = 0
    blocks_needed: int = 0
    """More than it holds, to run its next step (waiting: to start)."""
    preemptions: int = 0
    client: int = 0
    priority: int = 0
    waits_for: str = ""
    """Why it is not running: queue position, blocks, sequence limit, pause."""
    limit: str = ""
    """The same in a word: paused, sequences, or blocks; empty when only its turn is missing."""


class RequestTable(Struct, kw_only=True):
    items: list[RequestInfo]
    total: int
    """All in flight; `items` holds the oldest thousand at most."""


class EngineStats(Struct, kw_only=True):
    """`stats`: the counters since start and the state after the last step."""

    phase: str
    paused: str | None = None
    """Pause mode when paused."""
    sleeping: bool = False
    uptime_s: float = 0.0
    loop_counter: int = 0
    step_counter: int = 0
    last_turn_age_s: float = 0.0
    step_running_s: float | None = None
    """How long the step in progress has run."""
    step_tokens: int = 0
    """Tokens of the step in progress, or of the last."""
    running: int = 0
    waiting: int = 0
    num_gpu_blocks: int = 0
    free_blocks: int = 0
    cached_blocks: int = 0
    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    chunked_prefills: int = 0
    finished: dict[str, int] = {}
    """By finish reason."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    rejected_messages: int = 0
    refused_requests: int = 0
    dropped_outputs: int = 0
    pending_bytes: int = 0
    input_queue: int = 0
    output_queue: int = 0
    step_timings: StepTimings | None = None
