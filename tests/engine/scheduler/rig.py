"""A scheduler on a bench: requests by hand, and a runner that plays a model on simulated KV memory.

The runner stores at each slot a hash of everything before it, and checks before it answers that each row reads exactly
its own past: a block shared wrongly, read uncomputed or written by two shows at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from engine.messages import EngineCoreOutput, EngineCoreRequest, SamplingParams
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput
from engine.scheduler.request import Request, RequestStatus
from engine.scheduler.scheduler import Scheduler

BLOCK = 4
VOCAB = 50


def wire(
    request_id: str,
    prompt: list[int],
    *,
    priority: int = 0,
    arrival: float = 0.0,
    client: int = 0,
    salt: str | None = None,
    **sampling: object,
) -> EngineCoreRequest:
    params = SamplingParams(**sampling)  # type: ignore[arg-type]
    return EngineCoreRequest(
        request_id,
        prompt,
        sampling_params=params,
        arrival_time=arrival,
        cache_salt=salt,
        client_index=client,
        priority=priority,
    )


def make(
    request_id: str,
    prompt: list[int],
    *,
    seq: int = 0,
    block_size: int = BLOCK,
    max_model_len: int = 1000,
    **fields: object,
) -> Request:
    """A request as the input thread makes it; sampling params and wire fields by name."""
    return Request.from_wire(
        wire(request_id, prompt, **fields),
        block_size=block_size,  # type: ignore[arg-type]
        max_model_len=max_model_len,
        seq=seq,
    )


def scheduler(
    *,
    seqs: int = 8,
    budget: int = 64,
    max_model_len: int = 1000,
    blocks: int = 100,
    block_size: int = BLOCK,
    caching: bool = True,
) -> Scheduler:
    ticks = iter(range(1, 10**9))
    return Scheduler(
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        max_model_len=max_model_len,
        num_gpu_blocks=blocks,
        block_size=block_size,
        enable_prefix_caching=caching,
        clock=lambda: float(next(ticks)),
    )


def next_token(known: list[int]) -> int:
    """The rule: depends on every token before, never 0 or 1."""
    state = 7
    for token in known:
        state = (state * 31 + token + 1) % 1_000_003
    return 2 + state % (VOCAB - 2)


def generation(prompt: list[int], number: int) -> list[int]:
    """What the rule gives when nothing disturbs it."""
    known = list(prompt)
    for _ in range(number):
        known.append(next_token(known))
    return known[len(prompt) :]


@dataclass
class FakeRunner:
    block_size: int = BLOCK
    fails: set[str] = field(default_factory=set)
    """Ids whose next row fails."""
    script: dict[str, list[int]] = field(default_factory=dict)
    """Tokens to give instead of the rule's, by id."""
    tokens: dict[str, list[int]] = field(default_factory=dict)
    blocks: dict[str, list[int]] = field(default_factory=dict)
    memory: dict[tuple[int, int], int] = field(default_factory=dict)

    def execute(self, step: SchedulerOutput) -> ModelRunnerOutput:
        for request_id in step.dropped:
            del self.tokens[request_id], self.blocks[request_id]
        for new in step.new_requests:
            assert new.request_id not in self.tokens, "introduced twice"
            self.tokens[new.request_id], self.blocks[new.request_id] = list(new.token_ids), list(new.block_ids)
        for row in step.rows:
            self.blocks[row.request_id].extend(row.new_block_ids)
            assert row.num_tokens >= 1
            assert row.samples == (row.start + row.num_tokens == len(self.tokens[row.request_id]))
            self._write(row.request_id, row.start, row.num_tokens)
        assert sum(row.num_tokens for row in step.rows) == step.num_tokens
        result = ModelRunnerOutput([])
        for row in step.rows:
            self._check_past(row.request_id, row.start + row.num_tokens)
            result.sampled.append(self._sample(row.request_id, row.samples, result))
        return result

    def _sample(self, request_id: str, samples: bool, result: ModelRunnerOutput) -> int:
        if request_id in self.fails:
            self.fails.discard(request_id)
            result.errors[request_id] = "out of memory in its part"
            return -1
        if not samples:
            return -1
        script = self.script.get(request_id)
        token = script.pop(0) if script else next_token(self.tokens[request_id])
        self.tokens[request_id].append(token)
        return token

    def _slot(self, request_id: str, position: int) -> tuple[int, int]:
        return (self.blocks[request_id][position // self.block_size], position % self.block_size)

    def _write(self, request_id: str, start: int, number: int) -> None:
        known = self.tokens[request_id]
        for position in range(start, start + number):
            self.memory[self._slot(request_id, position)] = hash(tuple(known[: position + 1]))

    def _check_past(self, request_id: str, end: int) -> None:
        known = self.tokens[request_id]
        for position in range(end):
            stored = self.memory.get(self._slot(request_id, position))
            assert stored == hash(tuple(known[: position + 1])), f"{request_id} reads a foreign slot at {position}"


class Bench:
    """Scheduler and runner together; every step checks what must always hold."""

    def __init__(self, **settings: int | bool) -> None:
        self.scheduler = scheduler(**settings)  # type: ignore[arg-type]
        self.runner = FakeRunner(self.scheduler.kv_cache.block_size)
        self.tokens: dict[str, list[int]] = {}
        self.final: dict[str, EngineCoreOutput] = {}
        self.finals: Counter[str] = Counter()
        self.first: dict[str, EngineCoreOutput] = {}
        self.order: list[str] = []
        """Ids in the order they ended."""

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.scheduler.add(request)

    def step(self) -> SchedulerOutput:
        step = self.scheduler.schedule()
        result = self.runner.execute(step)
        for outputs in self.scheduler.update_from_output(step, result).values():
            for output in outputs:
                self.take(output)
        check_invariants(self.scheduler)
        return step

    def run(self, limit: int = 10_000) -> int:
        """Steps until nothing is left to do; returns how many."""
        for number in range(limit):
            if not self.scheduler.has_work:
                return number
            self.step()
        raise AssertionError(f"work left after {limit} steps")

    def take(self, output: EngineCoreOutput) -> None:
        self.first.setdefault(output.request_id, output)
        self.tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
        if output.finished:
            self.finals[output.request_id] += 1
            self.final[output.request_id] = output
            self.order.append(output.request_id)


def check_invariants(scheduler: Scheduler) -> None:
    """References equal holders, a shared block is one that is found by hash, figures add up, running is in order."""
    cache = scheduler.kv_cache
    cache.check()
    holders = Counter(block for request in scheduler.running for block in request.block_ids)
    for block in range(cache.num_blocks):
        assert cache._references[block] == holders[block], f"block {block}"
        assert holders[block] < 2 or cache._hash_of[block] is not None, f"block {block} is shared without a hash"
    assert cache.num_used == len(holders) and cache.num_used + cache.num_free == cache.num_blocks
    assert len(scheduler.running) <= scheduler.max_num_seqs
    assert scheduler.running == sorted(scheduler.running, key=lambda request: request.order)
    for request in scheduler.running:
        assert request.status is RequestStatus.RUNNING
        assert len(request.block_ids) * cache.block_size == request.room >= request.num_computed_tokens
    assert scheduler.num_running + scheduler.num_waiting == len(scheduler._live)
