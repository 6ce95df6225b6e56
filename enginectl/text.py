"""Numbers and rows become text for people: one way to write a duration, a size, a table. Pure, no terminal, no rich."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from enginectl.control import ExitInfo

UNKNOWN = "-"
"""Printed where a figure cannot be known; never 0."""
ASCII_TWINS = str.maketrans(
    {
        "✔": "ok",
        "✖": "x",
        "·": "-",
        "→": "->",
        "×": "x",
        "…": "...",
        "⚠": "!",
        "≈": "~",
        "›": ">",
        "─": "-",
        "│": "|",
    }
)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def number(value: float | None) -> str:
    """`32,768`; whole."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def size(value: float | None) -> str:
    """`15.2 GiB`"""
    if value is None:
        return UNKNOWN
    scaled, unit = float(value), 0
    while abs(scaled) >= 1024 and unit < len(_UNITS) - 1:
        scaled, unit = scaled / 1024, unit + 1
    return f"{scaled:.0f} {_UNITS[unit]}" if unit == 0 else f"{scaled:.1f} {_UNITS[unit]}"


def seconds(value: float | None) -> str:
    """`0.21s`, `58.3s`, `2m05s`, `2h11m`, `3d04h`"""
    if value is None:
        return UNKNOWN
    if value < 0.995:
        return f"{value:.2f}s"
    if value < 99.95:
        return f"{value:.1f}s"
    if value < 3600:
        return f"{int(value) // 60}m{int(value) % 60:02d}s"
    if value < 86400:
        return f"{int(value) // 3600}h{int(value) % 3600 // 60:02d}m"
    return f"{int(value) // 86400}d{int(value) % 86400 // 3600:02d}h"


def clock(value: float) -> str:
    """`0:09`, `12:40`: time that runs."""
    return f"{int(value) // 60}:{int(value) % 60:02d}"


def milliseconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}ms"


def percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{ratio * 100:.0f}"


def ago(at: float, now: float | None = None) -> str:
    """`4m ago` of a wall clock time; empty when it is not known."""
    if not at:
        return ""
    age = max(0.0, (time.time() if now is None else now) - at)
    for limit, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "m")):
        if age >= limit:
            return f"{int(age // limit)}{unit} ago"
    return f"{int(age)}s ago"


def count(n: int, noun: str) -> str:
    """`1 request`, `2 requests`"""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def exit_text(exit: ExitInfo | None) -> str:
    """`signal 9 KILL` or `exit 1`; empty when it is not known."""
    if exit is None:
        return ""
    if exit.signal:
        return signal_text(exit.signal)
    return "" if exit.code is None else f"exit {exit.code}"


def signal_text(name: str) -> str:
    import signal

    short = name.removeprefix("SIG")
    try:
        return f"signal {int(getattr(signal, f'SIG{short}'))} {short}"
    except AttributeError:
        return f"signal {name}"


def user_id(engine_id: str) -> str:
    """The id as its user knows it: without the eight digits that a frontend adds."""
    return re.sub(r"-[0-9a-f]{8}$", "", one_line(engine_id, 120))


def clip(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    return text[: max(0, width - 1)] + "…" if width > 0 else ""


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Sequence[int] = (0,),
    width: int | None = None,
    shrink: int | None = None,
    drop: Sequence[int] = (),
    least: int | None = None,
) -> list[str]:
    """Lines of an aligned table, header first; columns named in `left` to the left, the others to the right.
    `width`: of the terminal. What does not fit: columns of `drop` go in that order, then the column `shrink` gives way,
    then lines are cut. None: nothing is ever cut. `least`: the column `shrink` gives way to so many cells first."""
    widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    kept = list(range(len(headers)))
    if width is not None:
        _fit_columns(widths, kept, headers, width, shrink, drop, least)
    lines = []
    for row in [headers, *rows]:
        line = "  ".join(_cell(row[i], widths[i], i in left) for i in kept).rstrip()
        lines.append(line if width is None else clip(line, width))
    return lines


def _fit_columns(
    widths: list[int],
    kept: list[int],
    headers: Sequence[str],
    width: int,
    shrink: int | None,
    drop: Sequence[int],
    least: int | None,
) -> None:
    """Changes `kept` and `widths` until the table fits, as far as it can."""

    def excess() -> int:
        return sum(widths[i] for i in kept) + 2 * (len(kept) - 1) - width

    gives = 0 if shrink is None or least is None else max(0, widths[shrink] - least)
    for column in drop:
        if excess() <= gives:
            break
        kept.remove(column)
    if shrink is not None and excess() > 0:
        widths[shrink] = max(len(headers[shrink]), 6, widths[shrink] - excess())


def _cell(text: str, width: int, left: bool) -> str:
    clipped = clip(text, width)
    return clipped.ljust(width) if left else clipped.rjust(width)


def wrap(parts: Sequence[str], width: int | None, *, separator: str = ", ", indent: str = "  ") -> list[str]:
    """The parts on as many lines as they need, each begun with `indent`, none broken in two; a line that goes on ends
    with the separator. None: one line."""
    lines: list[str] = []
    for part in parts:
        if lines and (width is None or len(lines[-1]) + len(separator) + len(part) + 1 <= width):
            lines[-1] += separator + part
            continue
        if lines:
            lines[-1] += separator.rstrip()
        lines.append(indent + part)
    return lines


def pairs(rows: Sequence[tuple[str, str]], indent: str = "  ") -> list[str]:
    """Aligned `label  value` lines."""
    width = max((len(label) for label, _ in rows), default=0)
    return [f"{indent}{label:<{width}}  {value}".rstrip() for label, value in rows]


def printable(text: str) -> str:
    """Text of somebody else's making without what would steer a terminal."""
    return "".join(c if c in "\n\t" or (ord(c) >= 32 and not 127 <= ord(c) < 160) else "�" for c in text)


def one_line(text: str, width: int = 300) -> str:
    return clip(" ".join(printable(text).split()), width)
