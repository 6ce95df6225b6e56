"""`enginectl events`: what happened to an engine, oldest first; of a dead engine from its supervisor's log.

Reads only."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from enginectl.client import Engine, open_control
from enginectl.context import find_entry, one_name
from enginectl.control import EventView
from enginectl.control_verbs import EventList
from enginectl.errors import EngineDied, NotRunning, Unreachable
from enginectl.log_reader import last_lines
from enginectl.options import EngineOption, Format, NameArgument, OutputOption
from enginectl.output import out
from enginectl.reader import check_reader
from enginectl.rundir import EngineEntry
from enginectl.text import one_line

EXAMPLES = ("enginectl events qwen", "enginectl events -f -o json")
POLL_S = 0.5


def command(
    name: NameArgument = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on as they happen, until the engine ends.")
    ] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most so many of the youngest.")] = 50,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """List what happened to an engine: starts, verdicts, calls, aborts, ends."""
    entry = find_entry(one_name(name, engine), running=False)
    if entry.liveness != "running":
        return _of_the_dead(entry, limit)
    with Engine(open_control(entry.name)) as connected:
        events = connected.events(limit)
        if not follow:
            out.document("EventList", EventList(items=events))
        _show(events, as_lines=follow)
        seq = events[-1].seq if events else 0
        while follow:
            time.sleep(POLL_S)
            check_reader()
            try:
                events = connected.events(limit=1000, since_seq=seq)
            except (EngineDied, Unreachable, NotRunning):
                break
            _show(events, as_lines=True)
            seq = events[-1].seq if events else seq
    return None


def _show(events: list[EventView], *, as_lines: bool) -> None:
    for event in events:
        if as_lines:
            out.line(event.type, {"event": event})
        out.text(f"{_clock(event.ts)}  {event.type:<12}  {one_line(event.text)}")


def _clock(ts: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ts))


def _of_the_dead(entry: EngineEntry, limit: int) -> None:
    lines = last_lines(entry.paths.supervisor_log, limit) if entry.paths.supervisor_log.exists() else []
    out.document(
        "EventList",
        {
            "items": [
                {"ts": None, "seq": i + 1, "type": "log", "text": line, "data": {}} for i, line in enumerate(lines)
            ]
        },
    )
    out.say(f"{entry.name} is not running; from its supervisor's log:")
    out.text(*lines)
