"""One generation in flight: enters as an EngineCoreRequest that passed admission, leaves with its one final output.

Built by the input thread, which keeps no reference; from `Scheduler.add` on the scheduler alone reads and writes it.
It dies when its status turns FINISHED: the scheduler forgets it, and a step still running skips it."""

from __future__ import annotations

import math
import time
from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b

from engine.errors import RequestRefused
from engine.messages import EngineCoreEvent, EngineCoreRequest, FinishReason, SamplingParams
from engine.scheduler.output import ScheduledRow

HASH_BYTES = 16
_ROOT = bytes(HASH_BYTES)


class RequestStatus(IntEnum):
    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    """Had begun, lost its blocks, waits to recompute them."""
    FINISHED = 3


@dataclass(slots=True, eq=False)
class Request:
    """Counts are tokens. "Known" tokens are the prompt and the output so far; "computed" ones have their K and V."""

    request_id: str
    client_index: int
    external_req_id: str | None
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    max_tokens: int
    """Effective: what was asked for, cut to what max_model_len leaves."""
    priority: int
    """Lower runs first."""
    arrival_time: float
    """Wall clock, s; always finite."""
    cache_salt: str | None
    admitted_seq: int
    """Set by the input thread; an early abort hits only smaller ones."""
    eos_token_id: int | None
    """None too when ignore_eos is set."""
    stop_token_ids: frozenset[int]
    """Those that end it with their id as stop_reason; eos is apart."""
    block_hashes: list[bytes]
    """Of the full blocks, each chained to the one before; grows as output fills blocks."""
    stops: frozenset[int]
    """stop_token_ids and eos: one look-up per token."""
    num_prompt_tokens: int
    num_tokens: int
    """Known."""
    length_limit: int
    """Known tokens at which it ends with LENGTH."""
    min_length: int
    """Known tokens below which neither eos nor a stop id ends it."""
    output_token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    """Found in the prefix cache when it first started."""
    num_preemptions: int = 0
    status: RequestStatus = RequestStatus.WAITING
    block_ids: list[int] = field(default_factory=list)
    queued_at: float = 0.0
    """Monotonic, s; set by Scheduler.add."""
    events: list[EngineCoreEvent] = field(default_factory=list)
    """Not sent yet; they leave with the next output."""
    needs_prompt_logprobs: bool = False
    """Asked for and not yet delivered."""
    room: int = 0
    """Tokens that block_ids can hold."""
    num_published_blocks: int = 0
    """Leading blocks already offered to the prefix cache."""
    wire_bytes: int = 0
    """Of the message that asked for it; 0 when there was none."""
    publish_at: int = 0
    """Computed tokens at which the next block is full; set by the scheduler."""
    row: ScheduledRow = field(init=False)
    """Reused step after step: valid for the executor until the next schedule()."""

    def __post_init__(self) -> None:
        self.row = ScheduledRow(self.request_id, 0, 0, [], False)

    @classmethod
    def from_wire(
        cls, wire: EngineCoreRequest, *, block_size: int, max_model_len: int, seq: int, hash_blocks: bool = True
    ) -> Request:
        """Input thread; `wire` was validated, and its prompt list becomes ours.
        Raises RequestRefused when prompt or sampling params are missing, or no room for one token is left."""
        prompt, params = wire.prompt_token_ids, wire.sampling_params
        if not prompt or params is None:
            raise RequestRefused("a request needs prompt_token_ids and sampling_params")
        left = max_model_len - len(prompt)
        max_tokens = left if params.max_tokens is None else min(params.max_tokens, left)
        if max_tokens < 1:
            raise RequestRefused(
                f"prompt of {len(prompt)} tokens leaves no room for output: the limit is {max_model_len} tokens"
            )
        eos, stop_ids = _stop_conditions(params)
        return cls(
            request_id=wire.request_id,
            client_index=wire.client_index,
            external_req_id=wire.external_req_id,
            prompt_token_ids=prompt,
            sampling_params=params,
            max_tokens=max_tokens,
            priority=wire.priority,
            arrival_time=wire.arrival_time if math.isfinite(wire.arrival_time) else time.time(),
            cache_salt=wire.cache_salt,
            admitted_seq=seq,
            eos_token_id=eos,
            stop_token_ids=stop_ids,
            block_hashes=_hash_chain(prompt, block_size, _root(wire.cache_salt)) if hash_blocks else [],
            stops=stop_ids if eos is None else stop_ids | {eos},
            num_prompt_tokens=len(prompt),
            num_tokens=len(prompt),
            length_limit=len(prompt) + max_tokens,
            min_length=len(prompt) + params.min_tokens,
            needs_prompt_logprobs=params.prompt_logprobs is not None,
        )

    @property
    def num_output_tokens(self) -> int:
        return len(self.output_token_ids)

    @property
    def is_finished(self) -> bool:
        return self.status is RequestStatus.FINISHED

    @property
    def order(self) -> tuple[int, float, int]:
        """Smaller goes first, and is preempted last."""
        return (self.priority, self.arrival_time, self.admitted_seq)

    @property
    def may_read_prefix_cache(self) -> bool:
        """Prompt logprobs need every prompt token computed, so until they are delivered nothing may be skipped."""
        return not (self.needs_prompt_logprobs or self.sampling_params.skip_reading_prefix_cache)

    def known_token_ids(self) -> list[int]:
        """A copy: prompt, then output so far."""
        return self.prompt_token_ids + self.output_token_ids

    def finish_by(self, token_id: int) -> tuple[FinishReason, int | None] | None:
        """(reason, stop_reason) when `token_id`, its newest known token, ends it. Eos and stop ids beat the length."""
        if token_id in self.stops and self.num_tokens >= self.min_length:
            return FinishReason.STOP, None if token_id == self.eos_token_id else token_id
        return (FinishReason.LENGTH, None) if self.num_tokens >= self.length_limit else None

    def extend_hashes(self, num_blocks: int, block_size: int) -> None:
        """Makes block_hashes reach `num_blocks`, whose tokens must all be known."""
        hashes = self.block_hashes
        if len(hashes) >= num_blocks:
            return
        start, end, prompt = len(hashes) * block_size, num_blocks * block_size, self.num_prompt_tokens
        output = self.output_token_ids[max(0, start - prompt) : max(0, end - prompt)]
        parent = hashes[-1] if hashes else _root(self.cache_salt)
        hashes.extend(_hash_chain(self.prompt_token_ids[start:end] + output, block_size, parent))


def _stop_conditions(params: SamplingParams) -> tuple[int | None, frozenset[int]]:
    """(eos or None, ids that stop with themselves as reason). `all_stop_token_ids` is the frontend's union, with the
    model's end tokens in it, so under ignore_eos only the ids that were asked for by name count."""
    asked = params.stop_token_ids or []
    if params.ignore_eos:
        return None, frozenset(asked)
    eos = params.eos_token_id
    return eos, frozenset(asked).union(params.all_stop_token_ids) - ({eos} if eos is not None else set())


def _root(cache_salt: str | None) -> bytes:
    """What the first block is chained to: requests with different salts share no block."""
    if not cache_salt:
        return _ROOT
    return blake2b(cache_salt.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


def _hash_chain(token_ids: list[int], block_size: int, parent: bytes) -> list[bytes]:
    """Hashes of the full blocks of `token_ids`; a partial last block has none."""
    data = array("i", token_ids).tobytes()
    stride = block_size * array("i").itemsize
    hashes = []
    for at in range(0, len(data) - stride + 1, stride):
        parent = blake2b(parent + data[at : at + stride], digest_size=HASH_BYTES).digest()
        hashes.append(parent)
    return hashes
