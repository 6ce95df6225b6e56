"""The requests table: which rows, in which order, which columns fit. Pure.

Sorting and filtering touch every request; text is made for the rows on the screen alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from enginectl.control import RequestView
from enginectl.top import figures
from enginectl.top.layout import Line, fit, width_of
from enginectl.top.styles import LABEL, WARN

Key = tuple[bool, float | str]


def _number(read: Callable[[RequestView], float | None]) -> Callable[[RequestView], Key]:
    """Largest first; what is not known comes last."""

    def key(row: RequestView) -> Key:
        value = read(row)
        return value is None, -(value or 0.0)

    return key


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    title: str
    width: int
    """0: takes what is left."""
    cell: Callable[[RequestView], str]
    key: Callable[[RequestView], Key]
    left: bool = False
    brief: Callable[[RequestView], str] | None = None
    """For a figure that does not fit the width."""


def _blocks(row: RequestView) -> str:
    if row.state != "running" and row.blocks_needed:
        return f"({figures.count(row.blocks_needed)})"
    return figures.count(row.blocks)


def _out(row: RequestView) -> str:
    return f"{figures.count(row.output_tokens)}/{figures.count(row.max_tokens)}"


def _short_out(row: RequestView) -> str:
    return f"{figures.short(row.output_tokens)}/{figures.short(row.max_tokens)}"


def _tpot(row: RequestView) -> str:
    """In seconds once milliseconds would need more room."""
    if row.tpot_ms is None:
        return "-"
    return f"{figures.milliseconds(row.tpot_ms)}ms" if row.tpot_ms < 10_000 else figures.seconds(row.tpot_ms / 1000)


BRIEF_WAITS = {"blocks": "kv full", "sequences": "no place"}
"""By what holds a row; another reason is short as it is."""


def why(row: RequestView) -> str:
    """What there is to say about a row beyond its figures."""
    return _said(row, row.note or "hog", row.waits_for, "preempted")


def brief_why(row: RequestView) -> str:
    """The same in a few cells."""
    left = max(0, (row.max_tokens or 0) - row.output_tokens)
    hog = f"hog, {figures.short(left)} left" if left else "hog"
    wait = "its client waits" if row.state == "held" else BRIEF_WAITS.get(row.limit, row.waits_for)
    return _said(row, hog, wait, "pre")


def _said(row: RequestView, hog: str, waits_for: str, preempted: str) -> str:
    parts = [f"! {hog}" if row.is_hog else "", waits_for if row.state != "running" else ""]
    if row.preemptions:
        parts.append(f"{preempted} {row.preemptions}x")
    return ", ".join(part for part in parts if part)


def _has_words(row: RequestView) -> bool:
    return row.is_hog or row.state != "running" or row.preemptions > 0


COLUMNS: tuple[Column, ...] = (
    Column("id", "ID", 0, lambda r: r.external_id or r.id, lambda r: (False, r.external_id or r.id), True),
    Column("state", "STATE", 9, lambda r: r.state, lambda r: (False, r.state), True),
    Column("age", "AGE", 6, lambda r: figures.age(r.age_s), _number(lambda r: r.age_s)),
    Column("prompt", "PROMPT", 7, lambda r: figures.count(r.prompt_tokens), _number(lambda r: r.prompt_tokens)),
    Column("out", "OUT/MAX", 11, _out, _number(lambda r: r.output_tokens), brief=_short_out),
    Column("blocks", "BLOCKS", 8, _blocks, _number(lambda r: r.blocks if r.state == "running" else r.blocks_needed)),
    Column("cached", "CACHED", 6, lambda r: figures.percent(r.cached_ratio), _number(lambda r: r.cached_ratio)),
    Column("ttft", "TTFT", 6, lambda r: figures.seconds(r.ttft_s), _number(lambda r: r.ttft_s)),
    Column("tpot", "TPOT", 7, _tpot, _number(lambda r: r.tpot_ms)),
    Column("client", "CLIENT", 6, lambda r: str(r.client), _number(lambda r: r.client)),
)
HOG = "hog"
SORT_KEYS: dict[str, Callable[[RequestView], Key]] = {
    HOG: lambda row: (not row.is_hog, -row.age_s),
    **{column.name: column.key for column in COLUMNS},
}
"""`hog`: who holds everybody up first, then the oldest."""
SORTS = tuple(SORT_KEYS)
ASCENDING = frozenset(column.name for column in COLUMNS if column.left)
"""What is text goes from A to Z, figures from the largest down."""
DROP_ORDER = ("client", "cached", "ttft", "prompt", "tpot", "blocks", "out")
"""Columns a narrow table gives up, first to last."""
ID_MIN, ID_WANTED, ID_MAX, WHY_MAX = 12, 18, 38, 18
ROOMY = 56
"""Below this an id gets what it needs and no more."""


def arrange(rows: Sequence[RequestView], sort: str, invert: bool, wanted: str) -> list[RequestView]:
    """The rows that match the filter, in order; equal ones by id, so that nothing jumps between frames."""
    if wanted:
        needle = wanted.lower()
        rows = [row for row in rows if needle in searched(row)]
    out = sorted(rows, key=lambda row: row.id)
    out.sort(key=SORT_KEYS[sort])
    if invert:
        out.reverse()
    return out


def arrow(sort: str, invert: bool) -> str:
    """Up where the smallest stands first."""
    return "▲" if (sort in ASCENDING) != invert else "▼"


def searched(row: RequestView) -> str:
    """The text a filter looks into."""
    return f"{row.id} {row.external_id or ''} {row.state} client:{row.client} {why(row)}".lower()


def columns_for(width: int, rows: Sequence[RequestView]) -> list[Column]:
    """The columns that fit beside a readable id and, when a row has one, its reason; the last of DROP_ORDER stays
    longest."""
    kept = list(COLUMNS)
    needed = _id_wanted(rows) + 3 + _why_width(width, rows)
    for name in DROP_ORDER:
        if _fixed(kept) + needed <= width:
            break
        kept = [column for column in kept if column.name != name]
    return kept


def _id_wanted(rows: Sequence[RequestView]) -> int:
    """An id of the usual length is worth more than a figure; a long one is cut instead."""
    return min(ID_WANTED, max((len(row.external_id or row.id) for row in rows), default=ID_MIN))


def _why_width(width: int, rows: Sequence[RequestView]) -> int:
    """Cells kept for reasons: none when no row has one, few where there are few."""
    longest = max((len(brief_why(row)) + 1 for row in rows if _has_words(row)), default=0)
    return min(longest, WHY_MAX, width // 6)


def _fixed(columns: Sequence[Column]) -> int:
    return sum(column.width + 1 for column in columns if column.width)


def id_width(columns: Sequence[Column], rows: Sequence[RequestView], width: int) -> int:
    room = width - 3 - _fixed(columns)
    longest = max((len(row.external_id or row.id) for row in rows), default=ID_MIN)
    least = ID_MIN if width >= ROOMY else min(ID_MIN, longest)
    room = max(min(room, least), room - _why_width(width, rows))
    return max(4, min(room, max(least, min(longest, ID_MAX))))


def header(columns: Sequence[Column], ids: int, width: int, sort: str) -> Line:
    line: Line = [("  ", "")]
    for column in columns:
        style = "bold underline" if column.name == sort else "bold"
        line += _cell(column, column.title, ids, style)
    return fit(line, width)


def row_line(row: RequestView, columns: Sequence[Column], ids: int, width: int, is_cursor: bool) -> Line:
    """One row; the reason it waits, or its hog mark, takes what is left on the right."""
    base = "reverse" if is_cursor else (WARN if row.is_hog else (LABEL if row.state != "running" else ""))
    line: Line = [("› " if is_cursor else ("! " if row.is_hog else "  "), base)]
    for column in columns:
        text = column.cell(row)
        if column.brief is not None and len(text) > column.width:
            text = column.brief(row)
        line += _cell(column, text, ids, base)
    if _has_words(row):
        room = width - width_of(line)
        brief = brief_why(row)
        choices = (why(row), brief, brief.partition(",")[0], "!" if row.is_hog else "")
        said = next((text for text in choices if len(text) < room), "")
        line.append((" " + said, base or WARN))
    done = fit(line, width)
    return [(text, "reverse") for text, _ in done] if is_cursor else done


def _cell(column: Column, text: str, ids: int, style: str) -> Line:
    cells = column.width or ids
    if not column.left:
        return [(_right(text, cells) + " ", style)]
    pad = style if style == "reverse" else ""
    spans = fit([(text, style)], cells)
    return [*((spans[0],) if len(spans) == 1 else (spans[0], (spans[1][0], pad))), (" ", pad)]


def _right(text: str, cells: int) -> str:
    """Never wider than its column: one row too wide would move all that stands behind it."""
    return text.rjust(cells) if len(text) <= cells else text[: cells - 1] + "…"
