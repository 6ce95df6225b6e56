"""Counts since an engine run began, and histograms in the buckets that dashboards of this field know.

Fed by StatsBook, read by the metrics page. Nothing is ever taken out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

TTFT_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0
)  # fmt: skip
WHOLE_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
STEP_S = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 2.5, 5.0, 10.0, 60.0)


class Histogram:
    """Counts per bucket (upper edge included) and one above the last, the sum of all values."""

    __slots__ = ("counts", "edges", "sum")

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.edges, value)] += times
        self.sum += value * times

    @property
    def total(self) -> int:
        return sum(self.counts)


class Totals:
    """One engine run."""

    def __init__(self) -> None:
        self.ttft = Histogram(TTFT_S)
        self.token = Histogram(TOKEN_S)
        self.whole = Histogram(WHOLE_S)
        self.step = Histogram(STEP_S)
        self.prompt_tokens = 0
        """Of requests that gave their first token."""
        self.preemptions = 0
        self.steps = 0
