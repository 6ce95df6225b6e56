"""`enginectl requests`: what is in flight, the hog first, then oldest first. Reads only; never shows text or tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from enginectl import text
from enginectl.context import connect, one_name
from enginectl.control_verbs import RequestList, RequestsArgs
from enginectl.options import EngineOption, Format, NameArgument, OutputOption
from enginectl.output import out
from enginectl.views import REQUEST_HEADERS, request_row

EXAMPLES = ("enginectl requests", "enginectl requests qwen -n 10 -o json")

DROP = tuple(REQUEST_HEADERS.index(name) for name in ("CLIENT", "CACHED", "TTFT", "TPOT", "PROMPT", "NOTE", "BLOCKS"))
"""What a narrow terminal does without, in this order. The id is needed whole, to abort it."""


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
    note = len(REQUEST_HEADERS) - 1
    rows = [request_row(item) for item in items]
    out.text(*text.table(REQUEST_HEADERS, rows, left=(0, 1, note), width=out.table_width, shrink=0, drop=DROP))
    if found.total > len(items):
        out.say(f"{found.total - len(items):,} more; -n shows more rows")
    if not items:
        out.say("nothing in flight")
