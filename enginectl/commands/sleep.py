"""`enginectl sleep`: memory is given back, the process stays. Requests in flight end first. Already so is success."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from enginectl.context import connect, one_name
from enginectl.control_verbs import SleepArgs
from enginectl.gating import confirm_ending, gate, report
from enginectl.options import EngineOption, Format, NameArgument, OutputOption, YesOption, duration

EXAMPLES = ("enginectl sleep qwen --mode wait", "enginectl sleep --level 2 --yes")
GIVEN_BACK = {1: "KV cache given back", 2: "KV cache and weights given back"}


class Mode(StrEnum):
    wait = "wait"
    abort = "abort"


def command(
    name: NameArgument = None,
    level: Annotated[int, typer.Option("--level", min=1, max=2, help="1: the KV cache. 2: the weights too.")] = 1,
    mode: Annotated[Mode, typer.Option("--mode", help="Requests in flight finish first, or are aborted.")] = Mode.abort,
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
    """Give memory back and keep the process; `wake` takes it again. New requests wait meanwhile."""
    with connect(one_name(name, engine)) as connected:
        before = connected.status()
        if mode is Mode.abort:
            confirm_ending(before, "sleep", yes=yes)
        after = gate(connected, "sleep", SleepArgs(level=level, mode=mode.value, timeout_s=timeout), timeout)
    report(after, changed=before.state != "sleeping", line=f"{after.name}  sleeping: {GIVEN_BACK[level]}")
