"""The requests an executor holds between steps: tokens, blocks, what their sampling needs.

Enters: SchedulerOutput. Leaves: for each scheduled row the request behind it. One owner, the worker."""

from __future__ import annotations

import numpy as np
import torch

from engine.errors import EngineBug
from engine.model.inputs import Row
from engine.model.logprobs import Collected
from engine.model.sampler_state import SamplerState
from engine.scheduler.output import NewRequest, ScheduledRow, SchedulerOutput


class Held:
    """One request. `broken` is the text of a fault in its preparation; then it is never run."""

    def __init__(self, request: NewRequest, vocab: int, device: torch.device) -> None:
        self.tokens = request.token_ids
        self.num_prompt = request.num_prompt_tokens
        self.blocks = np.array(request.block_ids, np.int64)
        self.params = request.sampling_params
        self.broken: str | None = None
        self.prompt_logprobs = Collected() if request.needs_prompt_logprobs else None
        self.state: SamplerState | None = None
        try:
            self.state = SamplerState(self.params, self.tokens, self.num_prompt, vocab, device)
        except Exception as error:  # the request's own parameters, nobody else's step
            self.broken = f"sampling parameters cannot be used: {type(error).__name__}: {error}"

    def row(self, scheduled: ScheduledRow) -> Row:
        if scheduled.new_block_ids:
            self.blocks = np.concatenate((self.blocks, np.array(scheduled.new_block_ids, np.int64)))
        end = scheduled.start + scheduled.num_tokens
        if scheduled.num_tokens < 1 or end > len(self.tokens):
            raise EngineBug(
                f"request {scheduled.request_id}: tokens {scheduled.start} to {end} are scheduled, "
                f"{len(self.tokens)} are known"
            )
        kept = int(scheduled.samples) if self.prompt_logprobs is None else None
        return Row(self.tokens[scheduled.start : end], scheduled.start, scheduled.num_tokens, self.blocks, kept)


class Active:
    """One row of the running step."""

    __slots__ = ("held", "id", "row", "scheduled")

    def __init__(self, scheduled: ScheduledRow, held: Held) -> None:
        self.id = scheduled.request_id
        self.scheduled = scheduled
        self.held = held
        self.row = held.row(scheduled)


class HeldRequests:
    def __init__(self, vocab: int, device: torch.device) -> None:
        self._vocab = vocab
        self._device = device
        self._held: dict[str, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def apply(self, step: SchedulerOutput) -> list[Active]:
        """Forgets, takes in, and returns the step's rows in order. Raises EngineBug when a row is of nobody known."""
        for name in step.dropped:
            self._held.pop(name, None)
        for request in step.new_requests:
            self._held[request.request_id] = Held(request, self._vocab, self._device)
        try:
            return [Active(row, self._held[row.request_id]) for row in step.rows]
        except KeyError as error:
            raise EngineBug(f"the step schedules request {error}, which the executor does not hold") from None

    def clear(self) -> None:
        self._held.clear()
