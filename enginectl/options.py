"""Options that several verbs share, so that they look and read the same everywhere. typer only."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from enginectl.units import parse_duration


class Format(StrEnum):
    text = "text"
    json = "json"


def duration(text: str) -> float:
    """typer parser for durations."""
    return parse_duration(text)


duration.__name__ = "duration"

OutputOption = Annotated[
    Format, typer.Option("-o", "--output", envvar="ENGINECTL_OUTPUT", help="text, or json: one document on stdout.")
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "-e", "--engine", metavar="NAME", envvar="ENGINECTL_ENGINE", help="Engine; may be left out when one is running."
    ),
]
NameArgument = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="Engine; may be left out when one is running.", show_default=False),
]
YesOption = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]
