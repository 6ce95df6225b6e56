"""`enginectl run`: `start --foreground`."""

from __future__ import annotations

from enginectl.asking import ask
from enginectl.commands.start import (
    GpusOption,
    ModelOption,
    PythonOption,
    RestartOption,
    SetOption,
    StartName,
    start_in_foreground,
)
from enginectl.context import one_name
from enginectl.options import EngineOption, Format, OutputOption

EXAMPLES = ("enginectl run", "enginectl run qwen --model ~/models/qwen")


def command(
    name: StartName = None,
    model: ModelOption = None,
    set: SetOption = None,
    gpus: GpusOption = None,
    restart: RestartOption = None,
    python: PythonOption = None,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Start an engine in the foreground: logs to stderr, ends with it. What a systemd unit or a container uses."""
    start_in_foreground(
        ask(one_name(name, engine), model=model, sets=set or (), gpus=gpus, restart=restart, python=python)
    )
