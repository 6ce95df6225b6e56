"""Structs of the control protocol: why a request is where it is, and what its estimates were made with.

As in enginectl.control: additive changes only, unknown keys are ignored, new fields have defaults."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from enginectl.control import RequestView


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
    """What a step for so many takes now: the estimates are made with it."""
    step: int = 0
    """Step counter at this moment."""
    notes: list[str] = []


class ExplanationList(Struct, kw_only=True):
    items: list[Explanation]
