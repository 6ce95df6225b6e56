"""The requests table: which rows, in which order, which columns fit. Pure.

Sorting and filtering touch every request; text is made for the rows on the screen alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from enginectl.control import RequestView
from enginectl.top import figures
from enginectl.top.layout import Line, fit

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


def _blocks(row: RequestView) -> str:
    if row.state != "running" and row.blocks_needed:
        return f"({figures.count(row.blocks_needed)})"
    return figures.count(row.blocks)


def _out(row: RequestView) -> str:
    return f"{figures.count(row.output_tokens)}/{figures.count(row.max_tokens)}"


def why(row: RequestView) -> str:
    """What there is to say about a row beyond its figures."""
    parts = [f"! {row.note or 'hog'}" if row.is_hog else "", row.waits_for if row.state != "running" else ""]
    if row.preemptions:
        parts.append(f"preempted {row.preemptions}x")
    return ", ".join(part for part in parts if part)


COLUMNS: tuple[Column, ...] = (
    Column("id", "ID", 0, lambda r: r.external_id or r.id, lambda r: (False, r.external_id or r.id), True),
    Column("state", "STATE", 9, lambda r: r.state, lambda r: (False, r.state), True),
    Column("age", "AGE", 6, lambda r: figures.age(r.age_s), _number(lambda r: r.age_s)),
    Column("prompt", "PROMPT", 7, lambda r: figures.count(r.prompt_tokens), _number(lambda r: r.prompt_tokens)),
    Column("out", "OUT/MAX", 11, _out, _number(lambda r: r.output_tokens)),
    Column("blocks", "BLOCKS", 6, _blocks, _number(lambda r: r.blocks if r.state == "running" else r.blocks_needed)),
    Column("cached", "CACHED", 6, lambda r: figures.percent(r.cached_ratio), _number(lambda r: r.cached_ratio)),
    Column("ttft", "TTFT", 6, lambda r: figures.seconds(r.ttft_s), _number(lambda r: r.ttft_s)),
    Column(
        "tpot",
        "TPOT",
        7,
        lambda r: "-" if r.tpot_ms is None else f"{figures.milliseconds(r.tpot_ms)}ms",
        _number(lambda r: r.tpot_ms),
    ),
    Column("client", "CLIENT", 6, lambda r: str(r.client), _number(lambda r: r.client)),
)
BY_NAME = {column.name: column for column in COLUMNS}
SORTS = tuple(BY_NAME)
DROP_ORDER = ("client", "cached", "ttft", "blocks", "prompt", "tpot", "out")
"""Columns a narrow table gives up, first to last."""
ID_MIN, ID_MAX, WHY_MAX = 12, 38, 16


def arrange(rows: Sequence[RequestView], sort: str, invert: bool, wanted: str) -> list[RequestView]:
    """The rows that match the filter, in order; equal ones by id, so that nothing jumps between frames."""
    if wanted:
        needle = wanted.lower()
        rows = [row for row in rows if needle in searched(row)]
    out = sorted(rows, key=lambda row: row.id)
    out.sort(key=BY_NAME[sort].key)
    if invert:
        out.reverse()
    return out


def searched(row: RequestView) -> str:
    """The text a filter looks into."""
    return f"{row.id} {row.external_id or ''} {row.state} client:{row.client} {why(row)}".lower()


def columns_for(width: int, rows: Sequence[RequestView]) -> list[Column]:
    """The columns that fit beside a readable id and, when a row has one, its reason; the last of DROP_ORDER stays
    longest."""
    kept = list(COLUMNS)
    needed = ID_MIN + 3 + _why_width(width, rows)
    for name in DROP_ORDER:
        if _fixed(kept) + needed <= width:
            break
        kept = [column for column in kept if column.name != name]
    return kept


def _why_width(width: int, rows: Sequence[RequestView]) -> int:
    """Cells kept for reasons: none when no row has one, few where there are few."""
    return min(WHY_MAX, width // 6) if any(map(why, rows)) else 0


def _fixed(columns: Sequence[Column]) -> int:
    return sum(column.width + 1 for column in columns if column.width)


def id_width(columns: Sequence[Column], rows: Sequence[RequestView], width: int) -> int:
    room = width - 3 - _fixed(columns) - _why_width(width, rows)
    longest = max((len(row.external_id or row.id) for row in rows), default=ID_MIN)
    return max(4, min(room, max(ID_MIN, min(longest, ID_MAX))))


def header(columns: Sequence[Column], ids: int, width: int, sort: str) -> Line:
    line: Line = [("  ", "")]
    for column in columns:
        style = "bold underline" if column.name == sort else "bold"
        line += _cell(column, column.title, ids, style)
    return fit(line, width)


def row_line(row: RequestView, columns: Sequence[Column], ids: int, width: int, is_cursor: bool) -> Line:
    """One row; the reason it waits, or its hog mark, takes what is left on the right."""
    base = "reverse" if is_cursor else ("yellow" if row.is_hog else ("dim" if row.state != "running" else ""))
    line: Line = [("› " if is_cursor else ("! " if row.is_hog else "  "), base)]
    for column in columns:
        line += _cell(column, column.cell(row), ids, base)
    line.append((" " + why(row), base or "yellow"))
    done = fit(line, width)
    return [(text, "reverse") for text, _ in done] if is_cursor else done


def _cell(column: Column, text: str, ids: int, style: str) -> Line:
    cells = column.width or ids
    if not column.left:
        return [(text.rjust(cells) + " ", style)]
    pad = style if style == "reverse" else ""
    spans = fit([(text, style)], cells)
    return [*((spans[0],) if len(spans) == 1 else (spans[0], (spans[1][0], pad))), (" ", pad)]
