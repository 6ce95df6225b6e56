"""The rows of bench/RESULTS.md: what is compared, with which target, and the verdict.

Enters: the documents of single runs. Leaves: medians, ratios to the better of the peer's settings, Markdown. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from bench.groups import NEIGHBOUR

OURS = "ours"
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Row:
    title: str
    figure: str
    limit: float
    rule: Literal["times at least", "times at most", "at most"]
    """The first two: ours divided by the better of the peer's; the last: ours alone."""

    @property
    def more_is_better(self) -> bool:
        return self.rule == "times at least"

    @property
    def target(self) -> str:
        sign = ">=" if self.more_is_better else "<="
        return f"{sign} {number(self.limit)}" + ("" if self.rule == "at most" else " x")

    def better(self, values: Sequence[float]) -> float | None:
        known = [value for value in values if not math.isnan(value)]
        if not known:
            return None
        return max(known) if self.more_is_better else min(known)


def _decode_rows(limits: Mapping[int, float], *, neighbour: bool) -> list[Row]:
    beside, prefix = (", one core kept busy", f"{NEIGHBOUR}_") if neighbour else ("", "")
    return [
        Row(f"decode, {n} running, tokens/s{beside}", f"{prefix}decode_tok_s_{n}", limit, "times at least")
        for n, limit in limits.items()
    ]


ROWS = (
    *_decode_rows({1: 1.4, 8: 1.4, 32: 1.35}, neighbour=False),
    *(Row(f"mixed lengths, half sampled, {n} at once, tokens/s", f"mixed_tok_s_{n}", 2.0, "times at least")
      for n in (3, 17, 50)),
    Row("prefill, one prompt of 1,500 tokens, tokens/s", "prefill_tok_s", 1.2, "times at least"),
    Row("the same prompt again, ms", "prefill_again_ms", 0.4, "times at most"),
    Row("requests of one token, a second", "small_req_s", 1.1, "times at least"),
    Row("time to first token, 1 request, ms", "ttft_ms_1", 1.0, "times at most"),
    Row("time to first token, 32 requests, ms", "ttft_ms_32", 1.0, "times at most"),
    Row("call, idle, p50, ms", "call_idle_p50_ms", 1.0, "times at most"),
    Row("call, idle, p99, ms", "call_idle_p99_ms", 1.0, "times at most"),
    Row("read-only call, 32 running, p50, ms", "call_busy_p50_ms", 1.0, "at most"),
    Row("read-only call, 32 running, p99, ms", "call_busy_p99_ms", 6.0, "at most"),
    Row("step, 32 running, p99 / p50", "step_p99_per_p50", 1.0, "times at most"),
    *_decode_rows({1: 1.2, 8: 1.2, 32: 1.2}, neighbour=True),
    Row("spawn to READY, s", "ready_s", 5.0, "at most"),
    Row("first request after READY / tenth", "first_per_tenth", 1.5, "at most"),
    Row("memory of the process group after the run, MB", "rss_mb", 1200.0, "at most"),
    Row("SIGTERM to gone, idle, s", "stop_s", 1.0, "at most"),
)  # fmt: skip


def medians(results: Iterable[Mapping[str, object]]) -> dict[str, float]:
    """Of each figure over the runs that have it."""
    values: dict[str, list[float]] = {}
    for result in results:
        for name, value in result.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                values.setdefault(name, []).append(float(value))
    return {name: median(found) for name, found in values.items()}


@dataclass(frozen=True)
class Line:
    """One row with its figures; nan where there is none."""

    row: Row
    ours: float
    peers: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Ours to the better of the peer's."""
        better = self.row.better(self.peers)
        return self.ours / better if better else math.nan

    @property
    def holds(self) -> bool | None:
        """None: not measured."""
        value = self.ours if self.row.rule == "at most" else self.ratio
        if math.isnan(value):
            return None
        return value >= self.row.limit if self.row.more_is_better else value <= self.row.limit

    @property
    def is_complete(self) -> bool:
        return not any(math.isnan(value) for value in (self.ours, *self.peers))


def lines(figures: Mapping[str, Figures], peers: Sequence[str]) -> list[Line]:
    def find(arm: str, row: Row) -> float:
        return figures.get(arm, {}).get(row.figure, math.nan)

    return [Line(row, find(OURS, row), tuple(find(peer, row) for peer in peers)) for row in ROWS]


# ---------------------------------------------------------------- Markdown


def number(value: float) -> str:
    """Three digits that count: 1,234 / 56.7 / 8.9 / 0.123; - for none."""
    if math.isnan(value):
        return "-"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def verdict(line: Line) -> str:
    return {True: "yes", False: "**no**", None: "-"}[line.holds]


def as_table(found: Sequence[Line], titles: Sequence[str]) -> list[str]:
    head = ["", OURS, *titles, "ratio to the better", "target", "holds"]
    text = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for line in found:
        values = [number(value) for value in (line.ours, *line.peers, line.ratio)]
        text.append(f"| {' | '.join([line.row.title, *values, line.row.target, verdict(line)])} |")
    return text
