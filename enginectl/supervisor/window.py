"""Sliding windows over time: sums that become rates, samples that become percentiles. Bounded, clock passed in."""

from __future__ import annotations

import math
from collections import deque

BUCKET_S = 0.25
IDLE_AFTER_S = 1.0
"""Without work a rate is 0 at the first look so long after the last event, not only when the window has passed."""


class Counter:
    """Adds up in buckets of a quarter second."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._buckets: deque[list[float]] = deque()
        self._began: float | None = None
        """Start of the busy time that the rate is an average of."""
        self._last = 0.0

    def add(self, now: float, count: int) -> None:
        if count <= 0:
            return
        if self._began is None:
            self._began = now
        self._last = now
        if self._buckets and now - self._buckets[-1][0] < BUCKET_S:
            self._buckets[-1][1] += count
        else:
            self._buckets.append([now, count])
        self._prune(now)

    def _prune(self, now: float) -> None:
        while self._buckets and now - self._buckets[0][0] > self._window_s:
            self._buckets.popleft()

    def total(self, now: float) -> float:
        return sum(count for at, count in self._buckets if now - at <= self._window_s)

    def settle(self, now: float, is_busy: bool) -> None:
        """Once a second, by who knows whether there is work: without any, the time that a rate averages is over."""
        if not is_busy and now - self._last > IDLE_AFTER_S:
            self._began = None
            self._buckets.clear()  # else the next burst would be given what came before the silence

    def rate(self, now: float) -> float:
        """Per second over the window, or since work began when that is shorter."""
        if self._began is None:
            return 0.0
        return self.total(now) / max(1.0, min(self._window_s, now - self._began))


class Samples:
    """Values with their times, at most 8,192 of the window."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._items: deque[tuple[float, float]] = deque(maxlen=8192)

    def add(self, now: float, value: float) -> None:
        self._items.append((now, value))

    def values(self, now: float) -> list[float]:
        """Oldest first."""
        while self._items and now - self._items[0][0] > self._window_s:
            self._items.popleft()
        return [value for _, value in self._items]

    def percentile(self, now: float, share: float) -> float | None:
        values = self.values(now)
        return percentile(sorted(values), share) if values else None


def percentile(ordered: list[float], share: float) -> float:
    """Nearest rank of a sorted list that is not empty."""
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]
