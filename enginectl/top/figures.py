"""Numbers, durations and strings as the dashboard writes them. Pure functions; None becomes `-`, never 0."""

from __future__ import annotations

import time
from collections.abc import Sequence

SPARKS = "▁▂▃▄▅▆▇█"
ASCII = str.maketrans(
    {
        "▁": "_",
        "▂": ".",
        "▃": ":",
        "▄": "-",
        "▅": "=",
        "▆": "+",
        "▇": "*",
        "█": "#",
        "░": ".",
        "▏": "|",
        "▌": "#",
        "╭": "+",
        "╮": "+",
        "╰": "+",
        "╯": "+",
        "│": "|",
        "─": "-",
        "·": "|",
        "…": "~",
        "›": ">",
        "▼": "v",
        "▲": "^",
        "✔": "x",
        "⠸": "*",
        "×": "x",
        "µ": "u",
        "✗": "!",
        "—": "-",
        "’": "'",
    }
)


def to_ascii(text: str) -> str:
    """The same width in ASCII; what has no stand-in becomes `?`."""
    if text.isascii():
        return text
    return text.translate(ASCII).encode("ascii", "replace").decode("ascii")


def clean(text: str) -> str:
    """Without control characters: an id or a log line must not steer the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def count(value: float | None) -> str:
    """1,912 up to 99,999, then 123k, 4.5M."""
    if value is None:
        return "-"
    if value < 100_000:
        return f"{round(value):,}"
    return f"{value / 1000:.0f}k" if value < 1_000_000 else f"{value / 1_000_000:.1f}M"


def short(value: float | None) -> str:
    """At most five cells: 912, 6.1k, 48k, 1.2M."""
    if value is None:
        return "-"
    if value < 1000:
        return f"{value:.0f}"
    if value < 1_000_000:
        return f"{value / 1000:.1f}k" if value < 10_000 else f"{value / 1000:.0f}k"
    return f"{value / 1_000_000:.1f}M"


def rate(value: float) -> str:
    """A rate is never below zero, whatever a counter that was reset says."""
    value = max(0.0, value)
    return f"{value:.1f}" if 0 < value < 100 else count(value)


def percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{round(min(max(ratio, 0.0), 1.0) * 100)}%"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """0.61s, 71.2s, then 2m05s, 2h11m, 3d04h."""
    if value is None:
        return "-"
    if value < 10:
        return f"{max(0.0, value):.2f}s"
    return f"{value:.1f}s" if value < 100 else span(value)


def age(value: float) -> str:
    """0.4s, 71.2s, then 2m05s."""
    return f"{max(0.0, value):.1f}s" if value < 100 else span(value)


def span(value: float) -> str:
    """A duration for people: 9s, 2m05s, 2h11m, 3d04h."""
    whole = max(0, int(value))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def size(value: int | None) -> str:
    """Bytes: 912MB, 1.4GiB."""
    if not value:
        return "-"
    return f"{value / 2**20:.0f}MB" if value < 1000 * 2**20 else f"{value / 2**30:.1f}GiB"


def interval(value: float) -> str:
    """1.0s, 0.25s."""
    return f"{value:.1f}s" if value == round(value, 1) else f"{value:g}s"


def clock(ts: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ts))


def spark(values: Sequence[float], cells: int) -> str:
    """The last `cells` values, one cell each, scaled from 0 to the largest; blanks on the left where some lack."""
    if cells <= 0:
        return ""
    shown = [max(0.0, v) for v in values[-cells:]]
    top = max(shown, default=0.0)
    marks = "".join(SPARKS[min(7, int(v / top * 7.999))] if top > 0 else SPARKS[0] for v in shown)
    return marks.rjust(cells)


def graph(values: Sequence[float], cells: int, rows: int) -> list[str]:
    """The values as columns `rows` high, top row first; each as wide as it can be, at most 3 cells."""
    if not values or cells <= 0:
        return []
    wide = max(1, min(3, cells // len(values)))
    shown = [max(0.0, v) for v in values[-(cells // wide) :]]
    top = max(shown)
    eighths = [round(v / top * rows * 8) if top > 0 else 0 for v in shown]
    out = []
    for row in range(rows - 1, -1, -1):
        marks = (min(8, max(0, n - row * 8)) for n in eighths)
        out.append("".join((SPARKS[n - 1] if n else " ") * wide for n in marks))
    return out


def bar(ratio: float | None, cells: int) -> str:
    filled = round(min(max(ratio or 0.0, 0.0), 1.0) * cells)
    return "█" * filled + "░" * (cells - filled)
