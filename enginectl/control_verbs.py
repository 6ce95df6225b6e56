"""Structs of the control protocol, continued: gates (pause, sleep), explain, the flight record, dump, metrics.

As in enginectl.control: additive changes only, unknown keys are ignored, new fields have defaults."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from engine.reports import UtilityInfo
from enginectl.control import RequestView


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


class ExplainArgs(Struct, kw_only=True):
    """verb `explain` -> ExplanationList: one for each request that the id means."""

    id: str


class Holder(Struct, kw_only=True):
    """A request that holds blocks others wait for."""

    id: str
    external_id: str | None = None
    blocks: int = 0
    share: float | None = None
    """Of all blocks."""
    tokens_left: int | None = None
    eta_s: float | None = None


Limit = Literal["", "paused", "sleeping", "stalled", "sequences", "blocks", "tokens", "unknown"]


class Explanation(Struct, kw_only=True):
    """Why a request is where it is. Estimates take every request to use all tokens it may."""

    request: RequestView
    position: int | None = None
    """In the line of those that wait, from 1; None when it runs."""
    limit: Limit = ""
    """What holds it, or the first in the line before it. tokens: the step's token budget. Empty: nothing."""
    because: str = ""
    blocks_needed: int | None = None
    blocks_free: int | None = None
    blocks_total: int | None = None
    running: int = 0
    max_num_seqs: int | None = None
    holders: list[Holder] = []
    """Largest first."""
    expected_start_s: float | None = None
    expected_start_steps: int | None = None
    tok_s: float | None = None
    tokens_left: int | None = None
    eta_s: float | None = None
    step_ms: float | None = None
    """The median that estimates are made with."""
    step: int = 0
    """Step counter at this moment."""
    notes: list[str] = []


class ExplanationList(Struct, kw_only=True):
    items: list[Explanation]


class FlightStep(Struct, kw_only=True):
    """One line of a flight record: one step of the engine. Nothing of any prompt or output is in it."""

    step: int
    t: float
    """Monotonic, s, when it ended."""
    tokens: int = 0
    prefill_tokens: int = 0
    running: int = 0
    waiting: int = 0
    free_blocks: int | None = None
    preempted: int = 0
    schedule_ms: float | None = None
    execute_ms: float | None = None
    sample_ms: float | None = None
    update_ms: float | None = None
    kv_used_ratio: float | None = None


class FlightHead(Struct, kw_only=True):
    """The first line of a flight record file."""

    schema: str = "enginectl/v1"
    type: Literal["flight"] = "flight"
    name: str = ""
    instance: str = ""
    engine: str = ""
    model: str = ""
    kv_blocks: int | None = None
    max_num_seqs: int | None = None
    wall_offset_s: float = 0.0
    """Add it to `t` for the wall clock."""
    seen_by: Literal["engine", "supervisor"] = "supervisor"


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
