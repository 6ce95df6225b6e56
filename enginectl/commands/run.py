"""`enginectl run`: `start --foreground`."""

from __future__ import annotations

import typer

from enginectl.asking import ask
from enginectl.commands.start import (
    GpusOption,
    HoldLimitOption,
    HoldOption,
    HoldSampledOption,
    JoinOption,
    KindOption,
    ModelOption,
    NameOption,
    PythonOption,
    RemoteOption,
    RestartOption,
    SetOption,
    StartName,
    start_in_foreground,
)
from enginectl.context import one_name
from enginectl.group import rest_of
from enginectl.options import Format, OutputOption

TAKES_REST = True
EXAMPLES = ("enginectl run", "enginectl run qwen --model ~/models/qwen")


def command(
    context: typer.Context,
    name: StartName = None,
    model: ModelOption = None,
    set: SetOption = None,
    gpus: GpusOption = None,
    restart: RestartOption = None,
    python: PythonOption = None,
    join: JoinOption = None,
    allow_remote: RemoteOption = None,
    kind: KindOption = None,
    hold: HoldOption = None,
    hold_limit: HoldLimitOption = None,
    hold_sampled: HoldSampledOption = None,
    engine: NameOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Start an engine in the foreground: logs to stderr, ends with it. What a systemd unit or a container uses."""
    start_in_foreground(
        ask(
            one_name(name, engine),
            model=model,
            sets=set or (),
            gpus=gpus,
            restart=restart,
            python=python,
            outside={
                "engine": kind,
                "join": join,
                "allow_remote": allow_remote,
                "hold": hold,
                "hold_limit": hold_limit,
                "hold_sampled": hold_sampled,
                "rest": rest_of(context),
            },
        )
    )
