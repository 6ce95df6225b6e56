"""The four small panels and the step timing panel: a snapshot in, lines for inside a box out. Pure.

Each line has a long and a short form; the width decides. A crossed threshold is coloured and lettered (W, !)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from enginectl.control import EngineView
from enginectl.control_stats import HISTOGRAM_MS, GpuInfo, Stats, StepStats
from enginectl.top import figures
from enginectl.top.layout import Line, first_fit, width_of
from enginectl.top.snapshot import Snapshot
from enginectl.top.styles import ACCENT, BAD, GOOD, LABEL, WARN

KV_WARN, KV_FULL = 0.80, 0.95
GPU_WARN = 0.98
"""Of a GPU's memory: an engine takes most of it on purpose."""
SPARK_MIN = 3
SPARK_MAX = 40


def mark(is_warning: bool, is_bad: bool = False) -> tuple[str, str]:
    """The letter beside a figure and its style."""
    return ("!", BAD) if is_bad else (("W", WARN) if is_warning else ("", ""))


def labelled(label: str, value: str, letter: tuple[str, str] = ("", ""), cells: int = 0) -> Line:
    text, style = letter
    value = f" {value}".rjust(cells - len(label))
    return [(label, LABEL), (value, style or "bold"), (text, style)]


def with_spark(line: Line, values: Sequence[float], width: int, wanted: bool) -> Line:
    """The line, and a spark of the values in what is left of the width."""
    room = min(SPARK_MAX, width - width_of(line) - 1)
    if not wanted or room < SPARK_MIN or not values:
        return line
    return [*line, (" " + figures.spark(values, room).strip(), ACCENT)]


def stats_of(snapshot: Snapshot) -> Stats:
    """Empty figures until some came."""
    return snapshot.view.stats if snapshot.view and snapshot.view.stats else Stats()


def has_figures(snapshot: Snapshot) -> bool:
    """False: nothing is known yet, and a zero would be a lie."""
    return snapshot.view is not None and snapshot.view.stats is not None


def process(snapshot: Snapshot, width: int, sparks: bool) -> list[Line]:
    view, stats = snapshot.view, stats_of(snapshot)
    engine = view.process if view else None
    boss = view.supervisor if view else None
    pid, boss_pid = (str(engine.pid) if engine else "-"), (str(boss.pid) if boss else "-")
    cpu = f"{engine.cpu_percent:.0f}%" if engine else "-"
    rss, boss_rss = figures.size(engine.rss_bytes if engine else None), figures.size(boss.rss_bytes if boss else None)
    restarts = view.restarts if view else 0
    depth = f"{_dash(stats.input_queue)}/{_dash(stats.output_queue)}"
    again = mark(restarts > 0)
    gpus = view.gpus if view else []
    memory = first_fit(
        width,
        _pairs(("memory", rss), ("loop", _age(stats))),
        _pairs(("mem", rss), ("loop", _age(stats))),
        _pairs(("mem", rss)),
    )
    return [
        first_fit(
            width,
            _pairs(("engine", pid), ("cpu", cpu)),
            _pairs(("eng", pid), ("cpu", cpu)),
            _pairs(("eng", pid), ("", cpu)),
            _pairs(("eng", pid)),
        ),
        first_fit(
            width,
            _pairs(("superv", boss_pid), ("rss", boss_rss)),
            _pairs(("sup", boss_pid), ("", boss_rss)),
            _pairs(("sup", boss_pid)),
        ),
        gpu_line(gpus, width) if gpus else memory,
        first_fit(
            width,
            [*labelled("restarts", str(restarts), again), ("  ", ""), *labelled("ipc", depth)],
            [*labelled("rest", str(restarts), again), (" ", ""), *labelled("ipc", depth)],
        ),
        *([memory] if gpus else []),
        *(gpu_line([gpu], width) for gpu in gpus if len(gpus) > 1),
    ]


def gpu_line(gpus: Sequence[GpuInfo], width: int) -> Line:
    """`gpu0 92% 71.0/80.0GiB`; several as their mean and sum."""
    name = f"gpu{gpus[0].index}" if len(gpus) == 1 else f"{len(gpus)} gpus"
    known = [gpu.busy_ratio for gpu in gpus if gpu.busy_ratio is not None]
    busy = figures.percent(sum(known) / len(known) if known else None)
    used, total = sum(gpu.used_bytes for gpu in gpus) / 2**30, sum(gpu.total_bytes for gpu in gpus) / 2**30
    letter = mark(total > 0 and used / total >= GPU_WARN)
    long: Line = [(f"{name} ", LABEL), (busy, "bold"), (f" {used:.1f}/{total:.1f}GiB", letter[1] or "bold"), letter]
    tight: Line = [(f"{name} ", LABEL), (busy, "bold"), (f" {used:.0f}/{total:.0f}G", letter[1] or "bold"), letter]
    return first_fit(width, long, tight, tight[:2])


def queues(snapshot: Snapshot, width: int, sparks: bool) -> list[Line]:
    stats = stats_of(snapshot)
    stuck = stats.waiting > 0 and stats.running == 0 and snapshot.state in ("ready", "idle", "busy", "stalled")
    history = stats.history
    known = has_figures(snapshot)
    cells = 12 if width >= 12 + 2 + SPARK_MIN else 10
    waits = stats.waiting > 0 and not snapshot.is_dead
    skipped = labelled("skipped", figures.count(stats.skipped if known else None), mark(stats.skipped > 0), cells)
    lost = stats.rejected_messages + stats.dropped_outputs
    preempted, came = figures.rate(stats.preempted_per_min), figures.rate(stats.requests_in_s)
    return [
        with_spark(
            labelled("running", figures.count(stats.running if known else None), cells=cells),
            history.get("running", []),
            width,
            sparks,
        ),
        with_spark(
            labelled("waiting", figures.count(stats.waiting if known else None), mark(waits, stuck), cells),
            history.get("waiting", []),
            width,
            sparks,
        ),
        first_fit(width, [*skipped, ("  ", ""), *labelled("dropped", str(lost), mark(lost > 0))], skipped),
        first_fit(
            width,
            _pairs(("preempt", f"{preempted}/m"), ("in/s", came)),
            _pairs(("pre", f"{preempted}/m"), ("in", came)),
            _pairs(("pre", f"{figures.short(max(0.0, stats.preempted_per_min))}/m"), ("in", came)),
            _pairs(("pre", f"{figures.short(max(0.0, stats.preempted_per_min))}/m")),
        ),
    ]


def kv_cache(snapshot: Snapshot, width: int, sparks: bool) -> list[Line]:
    stats = stats_of(snapshot)
    used = stats.kv_used_ratio
    letter = mark((used or 0) >= KV_WARN, (used or 0) >= KV_FULL)
    cells = max(0, width - 6)
    hit = labelled("prefix hit", figures.percent(stats.prefix_hit_ratio))
    ratio: Line = [
        (figures.bar(used, cells), letter[1] or GOOD),
        (figures.percent(used).rjust(5), letter[1] or "bold"),
        (letter[0], letter[1]),
    ]
    numbers = f"{figures.count(stats.kv_used_blocks)}/{figures.count(stats.kv_blocks)}"
    return [
        ratio,
        first_fit(width, labelled("used", numbers.replace("/", " / ")), labelled("used", numbers), [(numbers, "bold")]),
        first_fit(
            width,
            labelled("free p5", figures.count(free_p5(stats))),
            labelled("free", figures.short(free_p5(stats))),
        ),
        with_spark(
            first_fit(
                width - (SPARK_MIN + 1 if sparks else 0),
                hit,
                labelled("hit", figures.percent(stats.prefix_hit_ratio)),
            ),
            stats.history.get("prefix_hit_ratio", []) if stats.prefix_hit_ratio is not None else [],
            width,
            sparks,
        ),
    ]


def free_p5(stats: Stats) -> int | None:
    """Blocks that were free in all but the worst twentieth of the last minute; now, while there is no minute yet."""
    if stats.kv_blocks is None or stats.kv_used_blocks is None:
        return None
    ratios = sorted(stats.history.get("kv_used_ratio", []))
    if not ratios:
        return stats.kv_blocks - stats.kv_used_blocks
    return round(stats.kv_blocks * (1 - min(1.0, ratios[(len(ratios) - 1) * 95 // 100])))


def throughput(snapshot: Snapshot, width: int, sparks: bool) -> list[Line]:
    stats = stats_of(snapshot)
    history = stats.history
    known = has_figures(snapshot)
    cells = 13 if width >= 13 + 1 + SPARK_MIN else 12
    ttft = _two(_plain(stats.ttft_p50_s), _plain(stats.ttft_p95_s), "s")
    tpot = _two(figures.milliseconds(stats.tpot_p50_ms), figures.milliseconds(stats.tpot_p95_ms), "ms")
    return [
        with_spark(
            labelled("decode", figures.count(max(0.0, stats.decode_tok_s) if known else None), cells=cells),
            history.get("decode_tok_s", []),
            width,
            sparks,
        ),
        with_spark(
            labelled("prefill", figures.short(max(0.0, stats.prefill_tok_s) if known else None), cells=cells),
            history.get("prefill_tok_s", []),
            width,
            sparks,
        ),
        first_fit(width, labelled("ttft p50", ttft), labelled("ttft p95", figures.seconds(stats.ttft_p95_s))),
        first_fit(
            width,
            labelled("tpot p50", tpot),
            labelled("tpot p50", _two(figures.milliseconds(stats.tpot_p50_ms), figures.count(stats.tpot_p95_ms), "")),
            labelled("tpot p95", _whole_ms(stats.tpot_p95_ms)),
        ),
    ]


SMALL: dict[str, Callable[[Snapshot, int, bool], list[Line]]] = {
    "process": process,
    "queues": queues,
    "kv cache": kv_cache,
    "throughput": throughput,
}


SHARES = {"process": 27, "queues": 24, "kv cache": 24, "throughput": 25}
"""Of the width, side by side."""


def step_title(step: StepStats) -> Line:
    derived = " · from output spacing" if step.derived else ""
    steps = f"{step.steps:,} step{'' if step.steps == 1 else 's'}"
    return [("step timing", "bold"), (f" (last {step.window_s:g}s, {steps}{derived})", LABEL)]


def step_figures(step: StepStats, least: bool = False) -> Line:
    """`least`: without p99 and max."""
    named = (
        ("now", step.now_ms),
        ("p50", step.p50_ms),
        ("p95", step.p95_ms),
        ("p99", step.p99_ms),
        ("max", step.max_ms),
    )
    out: Line = []
    for name, value in named[: 3 if least else 5]:
        out += [(f"{name} ", LABEL), (figures.milliseconds(value), "bold"), ("  ", "")]
    return out[:-1]


def step_spark(step: StepStats, width: int, wanted: bool) -> Line:
    """The first line of the panel: recent steps as a spark, then the figures."""
    numbers = step_figures(step)
    room = width - width_of(numbers) - 5
    if not wanted or room < SPARK_MIN:
        return first_fit(width, [("ms  ", LABEL), *numbers], numbers, step_figures(step, least=True))
    return [("ms ", LABEL), (figures.spark(step.recent_ms, room), ACCENT), ("  ", ""), *numbers]


def bucket_names() -> list[str]:
    edges = [f"{edge:g}" for edge in HISTOGRAM_MS]
    middle = [f"{low}-{high}" for low, high in itertools.pairwise(edges)]
    return [f"<{edges[0]}", *middle, f">{edges[-1]}"]


def filled_buckets(step: StepStats) -> list[tuple[str, int]]:
    """Name and count from the first bucket that holds something to the last."""
    counts = step.histogram
    used = [i for i, n in enumerate(counts) if n]
    if not used:
        return []
    names = bucket_names()
    return [(names[i], counts[i]) for i in range(used[0], min(used[-1] + 1, len(names)))]


def histogram(step: StepStats, width: int) -> Line:
    """Buckets with a bar each, in one line; the bars shrink until it fits, then the names go."""
    buckets = filled_buckets(step)
    if not buckets:
        return [("no steps in this window", LABEL)]
    top = max(n for _, n in buckets)
    for cells in (14, 10, 7, 5, 3, 1):
        line: Line = []
        for name, n in buckets:
            line += [(f"{name} ", LABEL), ("█" * round(n / top * cells) or ("▏" if n else ""), ACCENT), (" ", "")]
        if width_of(line) <= width + 1:
            return line[:-1]
    return [
        ("histogram ", LABEL),
        (figures.spark([float(n) for _, n in buckets], len(buckets)), ACCENT),
        (f" {buckets[0][0]} .. {buckets[-1][0]} ms", LABEL),
    ]


def split_parts(step: StepStats) -> list[tuple[str, float | None]]:
    return [
        ("schedule", step.schedule_ms),
        ("execute", step.execute_ms),
        ("sample", step.sample_ms),
        ("update", step.update_ms),
        ("idle", step.idle_ms),
    ]


SHORT_NAMES = {"schedule": "sched", "execute": "exec"}


def slow_texts(step: StepStats) -> tuple[str, str]:
    """How many steps were slow and which was the last, long and short; empty when none was."""
    if not step.slow:
        return "", ""
    last = step.last_slow
    what = "" if last is None else f": step {last.step}"
    if last is not None and last.prefill_tokens:
        what += f" prefill {figures.short(last.prefill_tokens)}"
    elif last is not None:
        what += f" {figures.milliseconds(last.ms)}ms"
    return f"slow {step.slow}{what}", f"slow {step.slow}"


def split_line(step: StepStats, width: int) -> Line:
    """Where a step's time goes; on the right how many were slow, or what takes most."""
    parts = split_parts(step)
    long: Line = [("split  ", LABEL)]
    tight: Line = []
    for name, value in parts:
        long += [(f"{name} ", LABEL), (figures.milliseconds(value), "bold"), ("  ", "")]
        tight += [(f"{SHORT_NAMES.get(name, name)} ", LABEL), (figures.milliseconds(value), "bold"), (" ", "")]
    slow, briefly = slow_texts(step)
    if slow:
        forms = (long, [("split ", LABEL), *tight, (" ", "")], tight)
        wanted = [[*line, (said, WARN)] for said in (slow, briefly) for line in forms]
        return first_fit(width, *wanted, tight[:-1], tight[:8], tight[3:8])
    total = sum(value or 0.0 for _, value in parts)
    share = [("mostly ", LABEL), (max(parts, key=lambda p: p[1] or 0.0)[0], "bold")] if total > 0 else []
    return first_fit(width, [*long, *share], long[:-1], tight[:-1], tight[:8], tight[3:8])


def strip(view: EngineView | None, stats: Stats, width: int) -> list[Line]:
    """The queues, cache and steps in two plain lines, for when there is no room for boxes."""
    used = stats.kv_used_ratio
    letter = mark((used or 0) >= KV_WARN, (used or 0) >= KV_FULL)
    first: Line = [
        *labelled(" run", str(stats.running)),
        *labelled("  wait", str(stats.waiting), mark(stats.waiting > 0)),
        *labelled("  kv", figures.percent(used), letter),
        *labelled("  tok/s", figures.count(stats.decode_tok_s)),
    ]
    numbers = step_figures(stats.step)
    short_step: Line = [
        *labelled(" step now", figures.milliseconds(stats.step.now_ms)),
        *labelled("  p50", figures.milliseconds(stats.step.p50_ms)),
        *labelled("  p95", figures.milliseconds(stats.step.p95_ms)),
    ]
    return [first, first_fit(width, [(" step ms  ", LABEL), *numbers], short_step)]


def _pairs(*pairs: tuple[str, str]) -> Line:
    out: Line = []
    for name, value in pairs:
        out += [(f"{name} " if name else "", LABEL), (value, "bold"), ("  ", "")]
    return out[:-1]


def _two(p50: str, p95: str, unit: str) -> str:
    return f"{p50} p95 {p95}{unit if p95 != '-' else ''}"


def _whole_ms(value: float | None) -> str:
    """`447ms`; in seconds where that is shorter."""
    return "-" if value is None else f"{value:.0f}ms" if value < 10_000 else figures.seconds(value / 1000)


def _dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _age(stats: Stats) -> str:
    return figures.seconds(stats.loop_age_s)


def _plain(value: float | None) -> str:
    """Seconds without the unit, the leading zero dropped: .21"""
    return "-" if value is None else f"{value:.2f}".removeprefix("0") if value < 10 else f"{value:.1f}"
