"""The control protocol between commands and a supervisor: its envelope, and what a supervisor shows of an engine.

A request is one msgpack map on a DEALER; the supervisor's ROUTER answers with 0 or more `item` and `beat` replies and
then exactly one `reply`, `end` or `error`. docs/control.md is the page; this module, control_stats, control_verbs and
control_explain are the truth. Additive changes only within one version: unknown keys are ignored, new fields have
defaults."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct, field

from engine.messages import NIL, EngineCoreReadyResponse
from enginectl.control_stats import GpuInfo, ProcessInfo, Stats

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
    aborted: int | None = None
    """Requests that the stop or drain cut off; None where nobody asked for the end."""
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
    limit: str = ""
    """What it waits for in a word, as in Explanation; empty when only its turn is missing."""
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
