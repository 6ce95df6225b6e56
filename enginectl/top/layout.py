"""Lines, boxes and the frame: text laid out by cell, and which parts a small screen gives up. Pure.

A line is a list of (text, style) spans. Everything is cut and padded here, so no line is ever wider than its screen;
rich only turns the finished frame into bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style

from enginectl.top.figures import clean, to_ascii
from enginectl.top.styles import LABEL, WITH_SIXTEEN

Span: TypeAlias = tuple[str, str]
Line: TypeAlias = list[Span]

PARTS = ("events", "split", "histogram", "process", "throughput", "sparklines")
"""What is given up on a small screen, first to last."""
MIN_WIDTH, MIN_HEIGHT = 40, 10
"""Below this there is one line."""
HEIGHT_WITHOUT = (27, 20, 19, 17, 16, 15)
"""Rows a screen needs to show everything once the first 0, 1, 2, ... of PARTS are gone."""
WIDTH_FOR = {"process": 80, "throughput": 60}
"""Columns a screen needs to keep these side by side with the others."""


def shed(width: int, height: int | None) -> frozenset[str]:
    """The parts that do not fit. A short screen loses them in the order of PARTS until the rest fits; a narrow one
    loses what stands side by side, in the same order. height None: as tall as it takes."""
    gone = {part for part, needed in WIDTH_FOR.items() if width < needed}
    if height is not None:
        gone |= {part for part, needed in zip(PARTS, HEIGHT_WITHOUT, strict=True) if height < needed}
    return frozenset(gone)


def width_of(line: Iterable[Span]) -> int:
    return sum(len(text) if text.isascii() else cell_len(text) for text, _ in line)


def fit(line: Iterable[Span], width: int, fill: str = " ") -> Line:
    """Exactly `width` cells: cut with an ellipsis, or padded."""
    spans = [(clean(text), style) for text, style in line if text]
    missing = width - width_of(spans)
    if missing >= 0:
        return [*spans, (fill * missing, "")] if missing else spans
    return _cut(spans, width)


def _cut(spans: Line, width: int) -> Line:
    out: Line = []
    left = width - 1
    if width <= 0:
        return out
    for text, style in spans:
        cells = cell_len(text)
        if cells > left:
            out.append((set_cell_size(text, left) + "…", style))
            return out
        out.append((text, style))
        left -= cells
    return out


def first_fit(width: int, *choices: Line) -> Line:
    """The first that fits; the last is cut when none does."""
    return next((line for line in choices if width_of(line) <= width), choices[-1])


def between(left: Line, right: Line, width: int) -> Line:
    """left ... right on one line; the right part goes when both do not fit."""
    room = width - width_of(right) - 1
    if width_of(left) > room and room < width // 2:
        return fit(left, width)
    return [*fit(left, room + 1), *right]


def box(title: Line, body: Sequence[Line], width: int, height: int | None = None, style: str = LABEL) -> list[Line]:
    """A frame of `width` cells around `body`; `height` counts the borders, None takes as many rows as there are."""
    inner = max(0, width - 4)
    rows = list(body) if height is None else list(body)[: max(0, height - 2)]
    rows += [[]] * ((height or 0) - 2 - len(rows))
    head = fit(title, min(width_of(title), inner))
    top: Line = [("╭ ", style), *head, (" " + "─" * (inner - width_of(head)) + "╮", style)]
    out = [top]
    out += [[("│ ", style), *fit(row, inner), (" │", style)] for row in rows]
    out.append([("╰" + "─" * (width - 2) + "╯", style)])
    return out


def beside(boxes: Sequence[list[Line]]) -> list[Line]:
    """Boxes of one height, joined row by row."""
    return [[span for part in row for span in part] for row in zip(*boxes, strict=True)]


def split_width(width: int, shares: Sequence[int]) -> list[int]:
    """`width` in whole numbers, in proportion to `shares`; what is left over goes to the first ones."""
    total = max(1, sum(shares))
    out = [width * share // total for share in shares]
    for i in range(width - sum(out)):
        out[i % len(out)] += 1
    return out


def overlay(lines: list[Line], window: list[Line], width: int) -> list[Line]:
    """`window` in the middle of the lines, over whole rows."""
    start = max(0, (len(lines) - len(window)) // 2)
    wide = max((width_of(row) for row in window), default=0)
    pad = " " * max(0, (width - wide) // 2)
    out = list(lines)
    out[start : start + len(window)] = [[(pad, ""), *row] for row in window][: len(lines) - start]
    return out


class Frame:
    """A finished picture: a rich renderable, and plain lines for tests, pipes and comparing with the last one."""

    def __init__(
        self, lines: Iterable[Line], width: int, *, height: int | None = None, ascii_only: bool = False
    ) -> None:
        rows = list(lines)
        if height is not None:
            rows = rows[:height] + [[]] * (height - len(rows))
        self.width = width
        self.lines = [fit(row, width) for row in rows]
        if ascii_only:
            self.lines = [[(to_ascii(text), style) for text, style in row] for row in self.lines]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and other.width == self.width and other.lines == self.lines

    __hash__ = None  # type: ignore[assignment]

    def plain(self) -> list[str]:
        return ["".join(text for text, _ in row).rstrip() for row in self.lines]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        few = console.color_system == "standard"
        for number, row in enumerate(self.lines):
            if number:
                yield Segment.line()
            for text, wanted in row:
                style = WITH_SIXTEEN.get(wanted, wanted) if few else wanted
                yield Segment(text, Style.parse(style) if style else None)


def dimmed(lines: Iterable[Line]) -> list[Line]:
    """The same lines as something of the past."""
    return [[(text, LABEL) for text, _ in row] for row in lines]
