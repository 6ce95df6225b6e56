"""What one sitting at the dashboard saw, for the receipt that stays in the scrollback; and the last snapshots of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from msgspec import structs

from enginectl.top import figures
from enginectl.top.snapshot import Snapshot

HISTORY = 120
"""Snapshots kept for `[` and `]`."""
HISTORY_ROWS = 200
"""Requests kept of each but the youngest."""


class Session:
    """Peaks and sums since it began, or since `reset`; and the last HISTORY snapshots."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, history: int | None = HISTORY) -> None:
        self._monotonic = monotonic
        self._history: deque[Snapshot] = deque(maxlen=history)
        self.reset()

    def reset(self) -> None:
        self._began = self._monotonic()
        self._peak_kv: float | None = None
        self._p50: float | None = None
        self._p95: float | None = None
        self._aborted = 0
        self._aborted_seen: tuple[str, int] | None = None

    def add(self, snapshot: Snapshot) -> None:
        if self._history and len(self._history[-1].requests) > HISTORY_ROWS:
            last = self._history.pop()
            self._history.append(structs.replace(last, requests=last.requests[:HISTORY_ROWS]))
        self._history.append(snapshot)
        stats = snapshot.view.stats if snapshot.view else None
        if snapshot.view is None or stats is None or snapshot.is_dimmed:
            return
        if stats.kv_used_ratio is not None:
            self._peak_kv = max(self._peak_kv or 0.0, stats.kv_used_ratio)
        self._p50 = stats.step.p50_ms if stats.step.p50_ms is not None else self._p50
        self._p95 = stats.step.p95_ms if stats.step.p95_ms is not None else self._p95
        self._count_aborted(snapshot.view.instance, stats.aborted_total)

    def _count_aborted(self, instance: str, total: int) -> None:
        """A counter that began anew (another instance, a lower value) adds nothing for the jump."""
        if self._aborted_seen is not None and self._aborted_seen[0] == instance:
            self._aborted += max(0, total - self._aborted_seen[1])
        self._aborted_seen = (instance, total)

    @property
    def seqs(self) -> list[int]:
        return [snapshot.seq for snapshot in self._history]

    @property
    def latest(self) -> Snapshot | None:
        return self._history[-1] if self._history else None

    def at(self, seq: int | None) -> Snapshot | None:
        """That snapshot, the oldest kept when it has fallen out, the youngest for None."""
        if seq is None or not self._history:
            return self.latest
        return next((snapshot for snapshot in self._history if snapshot.seq >= seq), self.latest)

    def forget(self) -> None:
        """Another engine is on the screen: begin anew."""
        self._history.clear()
        self.reset()

    def receipt(self, name: str) -> str:
        watched = figures.span(self._monotonic() - self._began)
        steps = f"step p50 {figures.milliseconds(self._p50)} p95 {figures.milliseconds(self._p95)} ms"
        return (
            f"enginectl top: {name} watched for {watched}, {steps}, "
            f"peak KV {figures.percent(self._peak_kv)}, aborted {self._aborted}"
        )
