"""`enginectl dump`: one file for a bug report. Alive: its supervisor collects; dead: its files. Never a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from enginectl import text
from enginectl.context import find_entry, one_name
from enginectl.options import EngineOption, Format, NameArgument, OutputOption, duration
from enginectl.output import out

EXAMPLES = ("enginectl dump qwen", "enginectl dump --out incident.tar.gz --no-logs")


def command(
    name: NameArgument = None,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", show_default=False, help="Where to; else enginectl-NAME-TIME.tar.gz."),
    ] = None,
    logs: Annotated[bool, typer.Option("--logs/--no-logs", help="With the last lines of both logs.")] = True,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=duration,
            metavar="DURATION",
            envvar="ENGINECTL_TIMEOUT",
            show_default="5s",
            help="How long the engine gets for each thing it is asked for.",
        ),
    ] = 5.0,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Write a bundle: state, requests without text, events, stacks, flight record, settings, logs, versions."""
    from enginectl.bundle import default_path, gather, write_bundle

    entry = find_entry(one_name(name, engine), running=False)
    gathered = gather(entry, timeout, with_logs=logs)
    where = write_bundle(out_file or default_path(entry.name), gathered.files)
    size = where.stat().st_size
    out.document(
        "Dump",
        {
            "name": entry.name,
            "path": str(where),
            "bytes": size,
            "files": sorted(gathered.files),
            "missing": gathered.missing,
            "evidence": gathered.evidence,
        },
    )
    for line in gathered.missing:
        out.say(f"not in it: {text.one_line(line)}")
    out.text(f"{where}   {text.size(size)}, {text.count(len(gathered.files), 'file')}")
    out.say("no prompt and no output is in it; read it before you hand it on")
