"""`enginectl logs`: what the engine wrote; of the running start, or of the one before. Reads files only."""

from __future__ import annotations

from typing import Annotated

import typer

from enginectl.context import find_entry, one_name
from enginectl.errors import NoSuchEngine
from enginectl.log_reader import end_of, follow, last_lines
from enginectl.options import EngineOption, Format, NameArgument, OutputOption
from enginectl.output import out
from enginectl.reader import check_reader
from enginectl.rundir import EngineEntry
from enginectl.text import printable

EXAMPLES = ("enginectl logs qwen -f", "enginectl logs qwen --previous -n 50")


def command(
    name: NameArgument = None,
    follow_: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on as lines come, until the engine ends.")
    ] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many of the last lines.")] = 100,
    previous: Annotated[
        bool, typer.Option("--previous", help="Of the start that ended, not of the one that runs.")
    ] = False,
    supervisor: Annotated[bool, typer.Option("--supervisor", help="The supervisor's own log.")] = False,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Show the engine's log."""
    entry = find_entry(one_name(name, engine), running=False)
    path = entry.paths.supervisor_log if supervisor else entry.paths.engine_log
    if not path.exists():
        raise NoSuchEngine(f"{entry.name!r} has no log yet", cause=str(path), try_=[f"enginectl start {entry.name}"])
    running = entry.liveness in ("running", "lost")
    offset = end_of(path)
    found = last_lines(path, lines, back=1 if previous and running and not _has_ended(entry) else 0)
    if out.json and not follow_:
        return out.document("Log", {"name": entry.name, "path": str(path), "lines": found})
    for line in found:
        _show(line)
    if follow_ and running and not previous:
        for line in follow(path, offset, lambda: _goes_on(entry)):
            _show(line)
    return None


def _goes_on(entry: EngineEntry) -> bool:
    """Raises BrokenPipeError when nobody reads any more."""
    check_reader()
    return EngineEntry.read(entry.name).liveness in ("running", "lost")


def _has_ended(entry: EngineEntry) -> bool:
    """Its last start is over, whether or not its supervisor still lives."""
    return entry.record is not None and entry.record.state in ("failed", "exited", "backoff")


def _show(line: str) -> None:
    out.line("log", {"text": line})
    out.text(printable(line) if out.stdout.isatty() else line)
