"""What travels between a frontend and an engine: one struct per meaning, no socket, no bytes.

Shapes and names are those of the v1 engine-core protocol (vLLM 0.25.1; what 0.32 adds is marked). Array structs are
positional: a reader ignores extra trailing elements and takes defaults for missing ones. `codec` alone knows frames.
Longer than a module should be, on purpose: the whole vocabulary of the wire is read, and compared, on one page. What
our own utilities answer is in `reports`."""

from __future__ import annotations

from enum import Enum, IntEnum

from msgspec import Raw, Struct, field

NIL = Raw(b"\xc0")
ENGINE_CORE_DEAD = b"ENGINE_CORE_DEAD"
"""The single frame that tells a client that the engine is gone, sent after everything queued before it."""
ABORTED_BY_OPERATOR = "aborted by operator"  # the stop_reason that goes with ERROR; supervisors count by it
PROTOCOL_VERSION = "0.25.1"


class EngineCoreRequestType(Enum):
    """The first frame of a request. The last two exist inside the engine's own input queue only."""

    ADD = b"\x00"
    ABORT = b"\x01"
    START_DP_WAVE = b"\x02"
    UTILITY = b"\x03"
    EXECUTOR_FAILED = b"\x04"
    WAKEUP = b"\x05"


class FinishReason(IntEnum):
    STOP = 0
    LENGTH = 1
    ABORT = 2
    ERROR = 3
    REPETITION = 4

    def __str__(self) -> str:
        return self.name.lower()


class EventType(IntEnum):
    QUEUED = 1
    SCHEDULED = 2
    PREEMPTED = 3


# ---------------------------------------------------------------- handshake


class HandshakeStatus(Struct, omit_defaults=True):
    """HELLO or READY, engine to frontend. `local`: the frontend itself started this engine."""

    status: str
    local: bool
    headless: bool
    parallel_config_hash: str | None = None


class EngineZmqAddresses(Struct, kw_only=True):
    """Where the engine connects to. One entry per client in both lists; a client's index is its place."""

    inputs: list[str]
    outputs: list[str]
    coordinator_input: str | None = None
    coordinator_output: str | None = None
    frontend_stats_publish_address: str | None = None


class EngineHandshakeMetadata(Struct):
    """INIT, frontend to engine."""

    addresses: EngineZmqAddresses
    parallel_config: dict[str, int | str | list[int]] = {}


class EngineCoreReadyResponse(Struct, kw_only=True):
    """Sent once on every input socket before anything else. The union of what 0.25 and 0.32 read."""

    max_model_len: int
    num_gpu_blocks: int
    block_size: int
    dp_stats_address: str | None = None
    dtype: str
    vllm_version: str = PROTOCOL_VERSION
    world_size: int = 1
    data_parallel_size: int = 1
    kv_cache_size_tokens: int | None = None
    kv_cache_max_concurrency: float | None = None
    # [0.32]
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    data_parallel_rank: int = 0
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    instance_id: str | None = None
    supports_lora: bool = False
    max_loras: int = 0
    mamba_block_size: int | None = None
    kv_events_config: Raw = NIL
    weight_transfer_backend: str | None = None
    enable_sleep_mode: bool = False
    supports_draft_weight_updates: bool = False
    effective_attention_block_size: int | None = None


# ---------------------------------------------------------------- requests


class SamplingParams(Struct, kw_only=True, omit_defaults=True):
    """How tokens are chosen, as it is on the wire (a map). `stop`, `output_kind` and the like are the frontend's
    business. The last group is known, not built, and refused when it asks for something (engine.admission)."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: list[str] | str | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    bad_words_token_ids: list[list[int]] | None = field(default=None, name="_bad_words_token_ids")
    output_kind: int = 0
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_text_buffer_length: int = 0
    skip_clone: bool = False
    skip_reading_prefix_cache: bool | None = None
    eos_token_id: int | None = field(default=None, name="_eos_token_id")
    all_stop_token_ids: list[int] = field(default_factory=list, name="_all_stop_token_ids")
    extra_args: Raw = NIL
    structured_outputs: Raw = NIL
    repetition_detection: Raw = NIL
    logprob_token_ids: Raw = NIL
    thinking_token_budget: Raw = NIL
    watermarking: Raw = NIL
    prompt_logprob_token_ids: Raw = NIL
    prompt_logprob_start: Raw = NIL


class EngineCoreRequest(Struct, array_like=True):
    """ADD: ask for one generation. Answered by 0 or more outputs, then exactly one with a finish_reason."""

    request_id: str
    prompt_token_ids: list[int] | None
    mm_features: Raw = NIL
    sampling_params: SamplingParams | None = None
    pooling_params: Raw = NIL
    arrival_time: float = 0.0
    """Wall clock, s."""
    lora_request: Raw = NIL
    cache_salt: str | None = None
    data_parallel_rank: int | None = None
    prompt_embeds: Raw = NIL
    prompt_is_token_ids: Raw = NIL
    client_index: int = 0
    current_wave: int = 0
    priority: int = 0
    """Lower runs first."""
    trace_headers: dict[str, str] | None = None
    resumable: bool = False
    external_req_id: str | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: Raw = NIL
    abort_immediately: bool = False
    session_id: str | None = None
    """[0.32]"""
    kv_hints: Raw = NIL
    """[0.32]"""


class UtilityCall(Struct, array_like=True):
    """UTILITY: call a registered method. `args` stay encoded until the method's own types are known."""

    client_index: int
    call_id: int
    method: str
    args: list[Raw] = []


class AbortIds(Struct):
    """ABORT: end these requests. Unknown and ended ids are no error."""

    request_ids: list[str]


class StartDPWave(Struct, array_like=True):
    wave: int
    exclude_engine_index: int


# ---------------------------------------------------------------- outputs


class NdArray:
    """An array on the wire: dtype as `<i4` (numpy) or `float32` (torch), C order, `data` the raw bytes.

    No Struct: only `codec` may write and read it, since long data travels in a frame of its own."""

    __slots__ = ("data", "dtype", "shape")

    def __init__(self, dtype: str, shape: list[int], data: bytes) -> None:
        self.dtype = dtype
        self.shape = shape
        self.data = data

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NdArray):
            return NotImplemented
        return (self.dtype, self.shape, self.data) == (other.dtype, other.shape, other.data)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"NdArray({self.dtype!r}, {self.shape!r}, {len(self.data)} bytes)"


class Logprobs(Struct, array_like=True):
    """For each token the chosen one first, then the k best.
    token_ids (T, k+1) int32   logprobs (T, k+1) float32   ranks (T,) int64, 1 = best   cu: [int] or nil"""

    token_ids: NdArray
    logprobs: NdArray
    ranks: NdArray
    cu_num_generated_tokens: list[int] | None = None


class EngineCoreEvent(Struct):
    type: int
    timestamp: float
    """Monotonic, s."""


class PrefillStats(Struct, kw_only=True):
    """Sent with a request's first output."""

    num_prompt_tokens: int = 0
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    num_local_cached_tokens: int = 0
    num_external_cached_tokens: int = 0


class EngineCoreOutput(Struct, array_like=True):
    """What one request gained in one step, in the 0.25 layout; `codec` moves the tail for 0.32."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: Logprobs | None = None
    new_prompt_logprobs: Logprobs | None = None
    pooling_output: Raw = NIL
    finish_reason: int | None = None
    stop_reason: int | str | None = None
    """The stop token's id, or the text of a refusal beside finish_reason ERROR."""
    events: list[EngineCoreEvent] | None = None
    kv_transfer_params: Raw = NIL
    trace_headers: dict[str, str] | None = None
    prefill_stats: PrefillStats | None = None
    routed_experts: Raw = NIL
    num_nans_in_logits: int = 0

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None


class UtilityResult(Struct, array_like=True):
    """`type_info` is always nil from us: a name to import would be an invitation."""

    type_info: Raw = NIL
    value: Raw = NIL


class UtilityOutput(Struct, array_like=True):
    """Answer to one UTILITY, exactly one per call id, to the caller's own socket."""

    call_id: int
    failure_message: str | None = None
    result: UtilityResult | None = None


class PrefixCacheStats(Struct, kw_only=True):
    """Since the last report. `queries` and `hits` count tokens."""

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0


class StepTimings(Struct, kw_only=True):
    """Where one step's time went, ms. Ours: foreign frontends ignore the key."""

    schedule_ms: float = 0.0
    execute_ms: float = 0.0
    sample_ms: float = 0.0
    update_ms: float = 0.0
    total_ms: float = 0.0
    idle_ms: float | None = None
    """Since the step before it ended, with work there all along; None for the first after a rest."""
    observe_ms: float | None = None
    """What showing its state cost the loop since the step before; None as above."""


class QueueDepths(Struct, kw_only=True):
    """Messages waiting between the threads, and bytes the output thread still holds. Ours."""

    input_queue: int = 0
    output_queue: int = 0
    aborts_queue: int = 0
    pending_bytes: int = 0


class IterationDetails(Struct, kw_only=True):
    """What a foreign engine tells of its step."""

    elapsed_ms: float | None = None


class SchedulerStats(Struct, kw_only=True):
    """State after a step. The last group is ours; frontends ignore unknown keys."""

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    num_skipped_waiting_reqs: int = 0
    step_counter: int = 0
    current_wave: int = 0
    kv_cache_usage: float = 0.0
    """0..1"""
    prefix_cache_stats: PrefixCacheStats = field(default_factory=PrefixCacheStats)
    connector_prefix_cache_stats: Raw = NIL
    kv_cache_eviction_events: list[Raw] = []
    spec_decoding_stats: Raw = NIL
    kv_connector_stats: Raw = NIL
    waiting_lora_adapters: dict[str, int] = {}
    running_lora_adapters: dict[str, int] = {}
    cudagraph_stats: Raw = NIL
    perf_stats: Raw = NIL
    iteration_details: IterationDetails | None = None
    """[0.32], where it was asked for."""

    loop_counter: int = 0
    """Turns of the busy loop since start, steps or not."""
    num_scheduled_tokens: int = 0
    num_prefill_tokens: int = 0
    num_preempted: int = 0
    """Preemptions in this step."""
    free_blocks: int | None = None
    step_timings: StepTimings | None = None
    queue_depths: QueueDepths | None = None
    rejected_messages: int = 0
    """Since start: frames dropped because they could not be read."""
    dropped_outputs: int = 0
    """Since start: outputs dropped because their client's byte budget was spent."""


class EngineDead(Struct):
    """What a client reads instead of outputs when ENGINE_CORE_DEAD arrives."""


class EngineCoreOutputs(Struct, array_like=True):
    """One message to one client: the outputs of a step, or a utility's answer."""

    engine_index: int = 0
    outputs: list[EngineCoreOutput] = []
    scheduler_stats: SchedulerStats | None = None
    timestamp: float = 0.0
    """Monotonic, s."""
    utility_output: UtilityOutput | None = None
    finished_requests: list[str] | None = None
    wave_complete: int | None = None
    start_wave: int | None = None
    weight_version: str | None = None
    """[0.32]"""
