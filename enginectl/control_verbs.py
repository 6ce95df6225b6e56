"""Structs of the control protocol: for each verb its arguments, and what answers it unless that is a view.

As in enginectl.control: additive changes only, unknown keys are ignored, new fields have defaults."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

from engine.messages import NIL, SamplingParams
from engine.reports import UtilityInfo
from enginectl.control import EventView, RequestView


class StatusArgs(Struct, kw_only=True):
    """verb `status` -> EngineView."""


class WatchArgs(Struct, kw_only=True):
    """verb `watch`: a stream of EngineView, one now and one at each change (state, phase, drain progress), at least
    every interval_s. Ends when the supervisor ends."""

    interval_s: float = 1.0


class RequestsArgs(Struct, kw_only=True):
    """verb `requests` -> RequestList; hogs first, then the oldest, at most `limit`."""

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
    cancelled: bool = False
    """By `uncordon`."""
    finished: int = 0
    aborted: int = 0
    """By the drain, or a stop that ended it; neither counts what its client or an operator gave up meanwhile."""
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


class PauseArgs(Struct, kw_only=True):
    """verb `pause` -> EngineView. keep: freeze what runs. wait: let it finish, answered then. abort: end all."""

    mode: Literal["keep", "wait", "abort"] = "keep"
    timeout_s: float = 600.0


class ResumeArgs(Struct, kw_only=True):
    """verb `resume` -> EngineView."""

    timeout_s: float = 30.0


class SleepArgs(Struct, kw_only=True):
    """verb `sleep` -> EngineView. Level 1 gives the KV cache back, 2 the weights too."""

    level: int = 1
    mode: Literal["wait", "abort"] = "abort"
    timeout_s: float = 600.0


class WakeArgs(Struct, kw_only=True):
    """verb `wake` -> EngineView."""

    timeout_s: float = 600.0


class UtilitiesArgs(Struct, kw_only=True):
    """verb `utilities` -> UtilityTable. The engine is asked once in its life, so a stalled one has a table too."""

    timeout_s: float = 2.0
    """For the one time."""


class UtilityTable(Struct, kw_only=True):
    """`items` is None for an engine that does not describe itself."""

    items: list[UtilityInfo] | None = None


class DumpArgs(Struct, kw_only=True):
    """verb `dump`: a stream of DumpFile; `end` carries DumpEnd. The same files are kept in the evidence directory."""

    timeout_s: float = 5.0
    """For each thing the engine is asked for."""
    logs: bool = True


class DumpFile(Struct, kw_only=True):
    name: str
    data: bytes


class DumpEnd(Struct, kw_only=True):
    evidence: str = ""
    missing: list[str] = []
    """What could not be had, and why."""


class MetricsArgs(Struct, kw_only=True):
    """verb `metrics` -> Metrics: Prometheus text; `listen` begins to serve it over HTTP, `off` ends that."""

    listen: str | None = None
    allow_remote: bool = False


class Metrics(Struct, kw_only=True):
    text: str = ""
    listening: str = ""
    """URL, when it is served."""
