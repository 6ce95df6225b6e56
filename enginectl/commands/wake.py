"""`enginectl wake`: the memory that sleep gave back is taken again, requests run. Already so is success."""

from __future__ import annotations

from typing import Annotated

import typer

from enginectl.context import connect, one_name
from enginectl.control_verbs import WakeArgs
from enginectl.gating import gate, report
from enginectl.options import EngineOption, Format, NameArgument, OutputOption, duration

EXAMPLES = ("enginectl wake qwen", "enginectl wake && enginectl wait --for ready")


def command(
    name: NameArgument = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=duration,
            metavar="DURATION",
            envvar="ENGINECTL_TIMEOUT",
            show_default="10m",
            help="How long I wait for the memory.",
        ),
    ] = 600.0,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Take the memory again after `sleep`; what waited starts."""
    with connect(one_name(name, engine)) as connected:
        before = connected.status()
        after = gate(connected, "wake", WakeArgs(timeout_s=timeout), timeout)
    report(after, changed=before.state == "sleeping", line=f"{after.name}  awake")
