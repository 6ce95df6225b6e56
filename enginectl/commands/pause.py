"""`enginectl pause`: the scheduler stops; requests are frozen, finished first, or aborted. Already so is success."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from enginectl import text
from enginectl.context import connect, one_name
from enginectl.control import EngineView
from enginectl.control_verbs import PauseArgs
from enginectl.gating import confirm_ending, gate, report
from enginectl.options import EngineOption, Format, NameArgument, OutputOption, YesOption, duration

EXAMPLES = ("enginectl pause qwen", "enginectl pause --mode wait --timeout 2m")


class Mode(StrEnum):
    keep = "keep"
    wait = "wait"
    abort = "abort"


def command(
    name: NameArgument = None,
    mode: Annotated[
        Mode, typer.Option("--mode", help="What runs is frozen, finishes first, or is aborted. New requests wait.")
    ] = Mode.keep,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=duration,
            metavar="DURATION",
            envvar="ENGINECTL_TIMEOUT",
            show_default="10m",
            help="How long I wait for what runs.",
        ),
    ] = 600.0,
    yes: YesOption = False,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Stop scheduling without ending the engine: requests wait until `resume`."""
    with connect(one_name(name, engine)) as connected:
        before = connected.status()
        if mode is Mode.abort:
            confirm_ending(before, "pause --mode abort", yes=yes)
        after = gate(connected, "pause", PauseArgs(mode=mode.value, timeout_s=timeout), timeout)
    report(after, changed=before.state != "paused", line=f"{after.name}  paused: {_held(after)}")


def _held(view: EngineView) -> str:
    held = view.stats.running + view.stats.waiting if view.stats else 0
    return f"{text.count(held, 'request')} held until resume" if held else "new requests wait until resume"
