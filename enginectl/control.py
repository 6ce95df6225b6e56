"""The control protocol between commands and a supervisor: every struct that crosses control.sock and stats.sock.

A request is one msgpack map on a DEALER; the supervisor's ROUTER answers with 0 or more `item` and `beat` replies and
then exactly one `reply`, `end` or `error`. docs/control.md is the page; this module is the truth. Additive changes
only within one version: unknown keys are ignored, new fields have defaults."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct, field

from engine.messages import NIL, EngineCoreReadyResponse, SamplingParams
from enginectl.control_stats import HISTOGRAM_MS as HISTOGRAM_MS
from enginectl.control_stats import GpuInfo as GpuInfo
from enginectl.control_stats import ProcessInfo as ProcessInfo
from enginectl.control_stats import SlowStep as SlowStep
from enginectl.control_stats import Stats as Stats
from enginectl.control_stats import StepStats as StepStats

CONTROL_VERSION = 1
BEAT_S = 2.0
"""A stream that has nothing to say sends a beat this often, so that a vanished caller is noticed."""

State = Literal[
    "starting",
    "ready",
    "idle",
    "busy",
    "saturated",
    "paused",
    "sleeping",
    "cordoned",
    "draining",
    "stopping",
    "exited",
    "failed",
    "backoff",
    "stalled",
    "lost",
    "unreachable",
]


# ---------------------------------------------------------------- envelope


class ControlRequest(Struct, kw_only=True, omit_defaults=True):
    v: int = CONTROL_VERSION
    id: int
    verb: str
    args: Raw = NIL
    """The verb's own struct below, as a map."""
    version: str = ""
    """The caller's package version, for the log."""


class ErrorInfo(Struct, kw_only=True, omit_defaults=True):
    """enginectl.errors.CtlError, as fields."""

    id: str
    message: str
    cause: str = ""
    try_: list[str] = field(default_factory=list, name="try")
    see: list[str] = []
    exit: int = 1


class ControlReply(Struct, kw_only=True, omit_defaults=True):
    v: int = CONTROL_VERSION
    id: int
    kind: Literal["reply", "item", "end", "beat", "error"]
    data: Raw = NIL
    error: ErrorInfo | None = None


# ---------------------------------------------------------------- what a supervisor shows


class PhaseInfo(Struct, kw_only=True):
    """One named part of a start: spawn, handshake, load weights, kv cache, warm-up."""

    name: str
    began_s: float
    """Since the start began."""
    took_s: float | None = None
    """None while it goes on."""
    last_took_s: float | None = None
    """How long it took the last time this engine started."""
    detail: str = ""


class ExitInfo(Struct, kw_only=True):
    """How a process ended: a code or a signal by name, and what was known of why."""

    code: int | None = None
    signal: str | None = None
    cause: str = ""
    phase: str = ""
    at: float = 0.0
    """Wall clock, s."""
    requested: bool = False
    evidence: str = ""
    """Directory with what was saved."""
    step: int | None = None
    """The last step that was seen."""
    running: int | None = None
    waiting: int | None = None
    """Requests in flight then, as last seen."""
    up_s: float | None = None
    """Since it was spawned."""


class EngineView(Struct, kw_only=True):
    """One engine as its supervisor sees it; also what `-o json` prints and stats.sock publishes."""

    schema: str = "enginectl/v1"
    kind: str = "Engine"
    name: str
    state: State
    reason: str = ""
    """Why it is in this state, for states that need one."""
    instance: str = ""
    model: str = ""
    engine: str = "enginectl"
    """What kind of engine: enginectl or vllm, with its version once known."""
    supervisor: ProcessInfo | None = None
    process: ProcessInfo | None = None
    gpus: list[GpuInfo] = []
    """Those the engine uses; empty where there is none, or none can be seen."""
    started_at: float = 0.0
    """Wall clock, s."""
    uptime_s: float = 0.0
    ready_after_s: float | None = None
    last_ready_after_s: float | None = None
    phases: list[PhaseInfo] = []
    ready: EngineCoreReadyResponse | None = None
    asked: dict[str, str | int | float | bool | None] = {}
    """The settings that were given."""
    cordoned: bool = False
    drain: DrainProgress | None = None
    stats: Stats | None = None
    restarts: int = 0
    restart_policy: str = "no"
    next_restart_in_s: float | None = None
    returns: bool = False
    """It ends now and will start again by itself: a restart goes on."""
    last_exit: ExitInfo | None = None
    frontend: str = ""
    """The external frontend whose engine this is: where, and how it stands."""
    http: str = ""
    """URL where the frontend that was started with the engine serves."""
    held: int = 0
    """Requests whose clients wait while the engine is replaced."""
    held_s: float | None = None
    """For how long."""
    metrics: str = ""
    """URL where metrics are served, when they are."""
    log: str = ""
    supervisor_version: str = ""
    observed_at: float = 0.0
    """Wall clock, s, of this view."""


class RequestView(Struct, kw_only=True):
    """One request in flight. Never its text or tokens."""

    id: str
    external_id: str | None = None
    state: Literal["waiting", "running", "preempted", "held"] = "waiting"
    """held: its client waits while the engine is replaced."""
    age_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    max_tokens: int | None = None
    blocks: int | None = None
    blocks_needed: int | None = None
    cached_ratio: float | None = None
    ttft_s: float | None = None
    tpot_ms: float | None = None
    client: int = 0
    priority: int = 0
    preemptions: int = 0
    waits_for: str = ""
    is_hog: bool = False
    """Holds far more of the engine than its fair share; `note` says of what."""
    note: str = ""


class DrainProgress(Struct, kw_only=True):
    began_s_ago: float = 0.0
    grace_s: float = 0.0
    running: int = 0
    waiting: int = 0
    tokens_left: int = 0
    tok_s: float = 0.0
    eta_s: float | None = None
    worst_id: str = ""
    worst_eta_s: float | None = None
    will_miss: list[str] = []


class EventView(Struct, kw_only=True):
    """One line of `events`: something that happened to an engine."""

    ts: float
    seq: int
    type: str
    text: str
    data: dict[str, str | int | float | bool | None] = {}


# ---------------------------------------------------------------- verbs: arguments and results


class StatusArgs(Struct, kw_only=True):
    """verb `status` -> EngineView."""


class WatchArgs(Struct, kw_only=True):
    """verb `watch`: a stream of EngineView, one now and one at each change (state, phase, drain progress), at least
    every interval_s. Ends when the supervisor ends."""

    interval_s: float = 1.0


class RequestsArgs(Struct, kw_only=True):
    """verb `requests` -> RequestList."""

    limit: int = 1000


class RequestList(Struct, kw_only=True):
    items: list[RequestView]
    total: int


class EventsArgs(Struct, kw_only=True):
    """verb `events` -> EventList; the youngest `limit`, oldest first."""

    limit: int = 100
    since_seq: int = 0


class EventList(Struct, kw_only=True):
    items: list[EventView]


class CallArgs(Struct, kw_only=True):
    """verb `call` -> CallResult. `args` are positional; a deadline that passes is error E1403."""

    utility: str
    args: list[Raw] = []
    timeout_s: float = 30.0


class CallResult(Struct, kw_only=True):
    value: Raw
    took_ms: float
    step: int = 0


class AbortArgs(Struct, kw_only=True):
    """verb `abort` -> AbortResult, after the requests are gone. `ids`: engine ids, external ids or unique prefixes."""

    ids: list[str] = []
    all: bool = False
    older_s: float | None = None
    timeout_s: float = 10.0


class AbortOutcome(Struct, kw_only=True):
    asked: str
    id: str = ""
    result: Literal["aborted", "already-finished", "not-found", "ambiguous", "timeout"]
    detail: str = ""


class AbortResult(Struct, kw_only=True):
    items: list[AbortOutcome]


class GenerateArgs(Struct, kw_only=True):
    """verb `generate`: a stream of GenerateChunk; its `end` carries GenerateEnd. A caller that vanishes aborts it."""

    request_id: str = ""
    """Empty: the supervisor makes one."""
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    priority: int = 0
    cache_salt: str | None = None


class Array(Struct, array_like=True):
    """One array, its bytes inline: dtype as `<i4` or `float32`, C order."""

    dtype: str
    shape: list[int]
    data: bytes


class LogprobTables(Struct, array_like=True):
    """For each token the chosen one first, then the best: token_ids and logprobs (T, k+1), ranks (T,)."""

    token_ids: Array
    logprobs: Array
    ranks: Array


class GenerateChunk(Struct, kw_only=True, omit_defaults=True):
    request_id: str
    token_ids: list[int]
    logprobs: Raw = NIL
    """LogprobTables"""
    prompt_logprobs: Raw = NIL
    """LogprobTables"""


class GenerateEnd(Struct, kw_only=True):
    request_id: str
    finish_reason: str
    """stop, length, abort or error"""
    stop_reason: int | str | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    ttft_s: float | None = None
    total_s: float = 0.0


class StopArgs(Struct, kw_only=True):
    """verb `stop`: a stream of StopStage; ends when engine and supervisor are about to be gone."""

    grace_s: float = 10.0
    """How long requests get before they are aborted; 0 aborts at once."""
    term_s: float = 5.0
    """How long a process gets after the abort before TERM, and after TERM before KILL."""


class StopStage(Struct, kw_only=True):
    stage: Literal["drain", "abort", "terminate", "kill", "gone"]
    detail: str = ""
    elapsed_s: float = 0.0


class DrainArgs(Struct, kw_only=True):
    """verb `drain`: a stream of DrainProgress; `end` carries DrainEnd. Cancelled by `uncordon`."""

    grace_s: float = 300.0
    on_timeout: Literal["abort", "fail"] = "abort"
    stop: bool = True
    """Stop the engine once it is empty."""


class DrainEnd(Struct, kw_only=True):
    drained: bool
    finished: int = 0
    aborted: int = 0
    took_s: float = 0.0
    detail: str = ""


class CordonArgs(Struct, kw_only=True):
    """verbs `cordon` and `uncordon` -> EngineView. `uncordon` also cancels a drain."""


class RestartArgs(Struct, kw_only=True):
    """verb `restart`: a stream of EngineView until ready; `end` carries the last."""

    grace_s: float = 10.0
    timeout_s: float = 600.0
    hold: bool = False
    """Clients wait instead of failing: requests in flight are resumed by the new engine. Grace is not used then."""
    hold_limit_s: float | None = None
    """How long they wait at most; None: as the engine was started."""
    hold_sampled: Literal["resume", "fail"] | None = None


class KillArgs(Struct, kw_only=True):
    """verb `kill` -> ExitInfo: KILL to the engine's process group now. The supervisor ends too unless it restarts."""


class StacksArgs(Struct, kw_only=True):
    """verb `stacks` -> Stacks. Works on an engine whose loop does not turn (faulthandler on a signal)."""

    timeout_s: float = 5.0


class Stacks(Struct, kw_only=True):
    text: str
