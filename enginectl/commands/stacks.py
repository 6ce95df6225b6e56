"""`enginectl stacks`: what each thread of the engine does now, also when its loop hangs. Reads only."""

from __future__ import annotations

from typing import Annotated

import typer

from enginectl.context import connect, one_name
from enginectl.control_verbs import Stacks, StacksArgs
from enginectl.options import EngineOption, Format, NameArgument, OutputOption, duration
from enginectl.output import out
from enginectl.text import printable

EXAMPLES = ("enginectl stacks qwen", "enginectl stacks > stacks.txt")


def command(
    name: NameArgument = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=duration,
            metavar="DURATION",
            envvar="ENGINECTL_TIMEOUT",
            show_default="5s",
            help="How long I wait for them.",
        ),
    ] = 5.0,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Show the stack of every thread of the engine; needs no ptrace and no debugger."""
    with connect(one_name(name, engine)) as connected:
        args = StacksArgs(timeout_s=timeout)
        stacks = connected.control.request("stacks", args, Stacks, timeout_s=timeout + 2.0)
    out.document("Stacks", {"name": connected.name, "text": stacks.text})
    out.text(printable(stacks.text.rstrip()))
