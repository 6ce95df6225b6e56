"""`enginectl requests`: what is in flight, the hog first, then oldest first. Reads only; never shows text or tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from enginectl import text
from enginectl.context import connect, one_name
from enginectl.control_verbs import RequestList, RequestsArgs
from enginectl.options import EngineOption, Format, NameArgument, OutputOption
from enginectl.output import out
from enginectl.views import REQUEST_HEADERS, request_row

EXAMPLES = ("enginectl requests", "enginectl requests qwen -n 10 -o json")

NOTE = len(REQUEST_HEADERS) - 1
DROP = tuple(REQUEST_HEADERS.index(name) for name in ("CLIENT", "CACHED", "TTFT", "PROMPT", "TPOT", "BLOCKS"))
"""What a narrow terminal does without, in this order, and is told of. The id is needed whole, to abort it; the note is
what the others wait for, and is cut at the end."""
NOTE_LEAST = 24
"""Cells of a note that are worth more than the columns above."""


def command(
    name: NameArgument = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most so many rows.")] = 1000,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """List the requests in flight: state, age, tokens, blocks, and what each waits for."""
    with connect(one_name(name, engine)) as connected:
        found = connected.control.request("requests", RequestsArgs(limit=limit), RequestList)
    items = sorted(found.items, key=lambda r: (not r.is_hog, -r.age_s))
    out.document("RequestList", RequestList(items=items, total=found.total))
    lines = table_lines([request_row(item) for item in items], out.table_width)
    out.text(*lines)
    out.say(*left_out_lines(lines[0], out.table_width))
    if found.total > len(items):
        out.say(f"{found.total - len(items):,} more; -n shows more rows")
    if not items:
        out.say("nothing in flight")


def table_lines(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The header and the rows; None: as wide as they are."""
    return text.table(REQUEST_HEADERS, rows, left=(0, 1, NOTE), width=width, shrink=NOTE, drop=DROP, least=NOTE_LEAST)


def left_out_lines(header: str, width: int | None) -> list[str]:
    """Which columns the terminal had no room for, and where they are; nothing when all are there."""
    gone = [name for name in REQUEST_HEADERS if name not in header.split()]
    return text.wrap([*gone[:-1], f"{gone[-1]}; -o json has all"], width, indent="not shown: ") if gone else []
