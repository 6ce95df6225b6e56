"""What the scheduler counts, and the flight record of the last steps. Numbers enter, snapshots leave.

Written by the main thread after each step; the record may be read from any thread. Dies with the engine."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from engine.messages import FinishReason, PrefixCacheStats

FLIGHT_RECORD_STEPS = 4096


class StepRecord(NamedTuple):
    """One line of the flight record. Nothing of any prompt or output is in it."""

    step: int
    t: float
    """Monotonic, s, at the end of the step."""
    tokens: int
    prefill_tokens: int
    running: int
    waiting: int
    free_blocks: int
    preempted: int
    schedule_ms: float
    execute_ms: float
    sample_ms: float
    update_ms: float


class FlightRecord:
    """A ring of the last steps: one tuple a step, the oldest falls out."""

    def __init__(self, size: int = FLIGHT_RECORD_STEPS) -> None:
        self._ring: deque[tuple[int | float, ...]] = deque(maxlen=size)

    def __len__(self) -> int:
        return len(self._ring)

    def add(
        self,
        step: int,
        t: float,
        tokens: int,
        prefill_tokens: int,
        running: int,
        waiting: int,
        free_blocks: int,
        preempted: int,
        schedule_ms: float,
        execute_ms: float,
        sample_ms: float,
        update_ms: float,
    ) -> None:
        """The fields of StepRecord, in its order."""
        self._ring.append(
            (
                step,
                t,
                tokens,
                prefill_tokens,
                running,
                waiting,
                free_blocks,
                preempted,
                schedule_ms,
                execute_ms,
                sample_ms,
                update_ms,
            )
        )

    def steps(self, limit: int | None = None) -> list[StepRecord]:
        """Oldest first; the last `limit` only. Any thread: the copy is one call that never lets go of the GIL."""
        ring = list(self._ring)
        chosen = ring if limit is None else ring[len(ring) - limit :] if limit < len(ring) else ring
        return [StepRecord(*step) for step in chosen]  # type: ignore[arg-type]

    def to_json_lines(self) -> bytes:
        """One object a line, oldest first, as it goes into evidence."""
        encoder = msgspec.json.Encoder()
        return b"".join(encoder.encode(record._asdict()) + b"\n" for record in self.steps())


class Counters:
    """Since the engine started, but for `prefix_delta`: since it was last taken."""

    def __init__(self) -> None:
        self.preemptions = 0
        self.chunked_prefills = 0
        """Prefills that did not fit into the step they began in."""
        self.prefix_queries = 0
        """Tokens looked up."""
        self.prefix_hits = 0
        self.prompt_tokens = 0
        """Of requests whose prefill ended."""
        self.output_tokens = 0
        self.finished: dict[str, int] = {str(reason): 0 for reason in FinishReason}
        self.prefix_delta = PrefixCacheStats()

    def count_lookup(self, queries: int, hits: int, *, again: bool) -> None:
        """One request's look-up in the prefix cache, tokens. `again`: it comes back after a preemption."""
        self.prefix_queries += queries
        self.prefix_hits += hits
        delta = self.prefix_delta
        if again:
            delta.preempted_requests += 1
            delta.preempted_queries += queries
            delta.preempted_hits += hits
        else:
            delta.requests += 1
            delta.queries += queries
            delta.hits += hits

    def take_prefix_delta(self) -> PrefixCacheStats:
        delta, self.prefix_delta = self.prefix_delta, PrefixCacheStats()
        return delta
