"""What the scheduler and the executor tell each other about one step. Plain data, no torch: it can cross a process."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.messages import Logprobs, SamplingParams


@dataclass(slots=True)
class NewRequest:
    """A request that the executor does not hold: first time, or back after a preemption."""

    request_id: str
    token_ids: list[int]
    """Prompt and output so far. The executor owns this copy and appends what it samples."""
    num_prompt_tokens: int
    block_ids: list[int]
    """Every block it holds now, in order; the executor owns this copy too."""
    sampling_params: SamplingParams
    needs_prompt_logprobs: bool = False
    """Asked for and not yet delivered."""


@dataclass(slots=True)
class ScheduledRow:
    """One request's part of the step: tokens [start, start + num_tokens) of its token_ids go through the model."""

    request_id: str
    start: int
    num_tokens: int
    new_block_ids: list[int]
    """To append to the blocks the executor knows; empty for a request that is in `new_requests`."""
    samples: bool
    """True when this step reaches the last known token, so one new token comes out."""


@dataclass(slots=True)
class SchedulerOutput:
    step: int
    rows: list[ScheduledRow]
    new_requests: list[NewRequest] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    """Finished, aborted or preempted since the last step: forget them before anything else."""
    num_tokens: int = 0
    num_prefill_tokens: int = 0
    num_preempted: int = 0
    first_unused_block: int = 0
    """KV blocks from this id on were never handed out; they will be in their order."""


@dataclass(slots=True)
class ModelRunnerOutput:
    """What came out, row by row in the order of SchedulerOutput.rows."""

    sampled: list[int]
    """One token id a row; -1 where the row does not sample or failed."""
    logprobs: dict[str, Logprobs] = field(default_factory=dict)
    """By request id, for the token sampled in this step; only who asked."""
    prompt_logprobs: dict[str, Logprobs] = field(default_factory=dict)
    """By request id, whole, in the step that ends its prefill. For prompt tokens 1 .. n-1."""
    errors: dict[str, str] = field(default_factory=dict)
    """By request id: this request's own part failed. It ends, the others go on."""
    execute_ms: float = 0.0
    sample_ms: float = 0.0
