"""The last steps of an engine as its supervisor saw them: a dead engine cannot be asked.

SchedulerStats come in, one tuple a step; JSON lines leave. Nothing of any prompt or output is in it."""

from __future__ import annotations

import time
from collections import deque

import msgspec

from engine.messages import SchedulerStats
from enginectl.control_flight import FlightHead, FlightStep
from enginectl.supervisor.stats import is_uncounted

KEEP = 4096
FIELDS = FlightStep.__struct_fields__
_encode = msgspec.json.Encoder().encode


class FlightRing:
    """One engine run."""

    def __init__(self, keep: int = KEEP) -> None:
        self._ring: deque[tuple[int | float | None, ...]] = deque(maxlen=keep)
        self._last = -1

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, stats: SchedulerStats, now: float) -> None:
        """Once a step: the report of an idle engine repeats the last step and is left out. Steps of an engine that
        does not number them are numbered here."""
        number = max(0, self._last) + 1 if is_uncounted(stats) else stats.step_counter
        if number == self._last:
            return
        self._last = number
        timings = stats.step_timings
        self._ring.append(
            (
                number, now, stats.num_scheduled_tokens, stats.num_prefill_tokens, stats.num_running_reqs,
                stats.num_waiting_reqs, stats.free_blocks, stats.num_preempted,
                *((None,) * 4 if timings is None else
                  (timings.schedule_ms, timings.execute_ms, timings.sample_ms, timings.update_ms)),
                stats.kv_cache_usage,
            )
        )  # fmt: skip

    def steps(self) -> list[FlightStep]:
        """Oldest first."""
        return [FlightStep(**dict(zip(FIELDS, row, strict=True))) for row in self._ring]  # type: ignore[arg-type]


def wall_offset_s() -> float:
    return time.time() - time.monotonic()


def to_json_lines(head: FlightHead, steps: list[FlightStep]) -> bytes:
    """The head, then a line for each step."""
    return b"".join(_encode(line) + b"\n" for line in (head, *steps))
