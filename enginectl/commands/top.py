"""`enginectl top`: the engine live on a terminal; off it one snapshot or JSON lines. Reads only, unless told more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from enginectl.context import find_entry, one_name
from enginectl.errors import UsageError
from enginectl.options import EngineOption, Format, NameArgument, OutputOption, duration

EXAMPLES = ("enginectl top", "enginectl top --stream -n 60 > minute.jsonl", "enginectl top --replay minute.jsonl")
FASTEST_S, SLOWEST_S = 0.25, 10.0


def command(
    name: NameArgument = None,
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot; so it is off a terminal too.")] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Print a JSON line each interval, no drawing.")] = False,
    count: Annotated[int | None, typer.Option("-n", "--count", min=1, help="With --stream: end after so many.")] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="Look at what --stream, the key w or `dump` wrote.")
    ] = None,
    interval: Annotated[
        float, typer.Option("-i", "--interval", parser=duration, metavar="DURATION", help="From 0.25s to 10s.")
    ] = 1.0,
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="Let the keys a, D, C, x act on the engine; each asks first.")
    ] = False,
    ascii: Annotated[bool, typer.Option("--ascii", help="Boxes and sparks in ASCII.")] = False,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> int:
    """Watch one engine: process, queues, KV cache, throughput, step timing, requests, events. ? shows the keys."""
    from enginectl.top import entry
    from enginectl.top.state import Ui

    if not FASTEST_S <= interval <= SLOWEST_S:
        raise UsageError(f"--interval must be from {FASTEST_S:g}s to {SLOWEST_S:g}s, not {interval:g}s")
    if count is not None and not stream:
        raise UsageError("--count goes with --stream")
    if replay is not None:
        if stream:
            raise UsageError("--stream and --replay exclude each other")
        return entry.replay(replay, ascii_only=entry.wants_ascii(ascii), once=once)
    found = find_entry(one_name(name, engine), running=False).name
    if stream:
        return entry.write_stream(found, interval, count)
    ui = Ui(interval_s=interval, allow_actions=allow_actions)
    return entry.watch(found, ui, ascii_only=entry.wants_ascii(ascii), once=once)
