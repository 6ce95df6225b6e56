"""`enginectl ps`: every engine this user has, one row each. Reads only."""

from __future__ import annotations

from typing import Annotated

import typer

from enginectl import text
from enginectl.context import look
from enginectl.options import Format, OutputOption
from enginectl.output import out, plain
from enginectl.rundir import list_engines
from enginectl.views import ALIVE, PS_HEADERS, ps_row

EXAMPLES = ("enginectl ps", "enginectl ps --running -o json")


def command(
    running: Annotated[bool, typer.Option("--running", help="Leave out engines that have ended.")] = False,
    output: OutputOption = Format.text,
) -> None:
    """List engines: state, load, step time. `-` is a figure that cannot be known."""
    every = [look(entry) for entry in list_engines()]
    views = [view for view in every if not running or view.state in ALIVE]
    out.document("EngineList", {"items": [plain(view) for view in views]})
    rows = [ps_row(view) for view in views]
    model = len(PS_HEADERS) - 1
    out.text(*text.table(PS_HEADERS, rows, left=(0, 1, model), width=out.table_width, shrink=model))
    if every and not views:
        out.say(f"none of {len(every):,} engine{'' if len(every) == 1 else 's'} runs; `enginectl ps` lists them")
    elif not every:
        out.say("no engines yet; `enginectl start` starts one on the embedded model")
