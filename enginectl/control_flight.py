"""Structs of a flight record: a file of JSON lines, one head and then one line for each step.

Written by a supervisor (dump, evidence), replayed by `top`. As in enginectl.control: additive changes only, unknown
keys are ignored, new fields have defaults."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


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
