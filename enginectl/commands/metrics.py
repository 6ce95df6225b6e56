"""`enginectl metrics`: an engine's figures as Prometheus text, once, or served by its supervisor. Reads only, but for
--listen."""

from __future__ import annotations

from typing import Annotated

import typer

from enginectl.context import connect, one_name
from enginectl.control_verbs import Metrics, MetricsArgs
from enginectl.options import EngineOption, Format, NameArgument, OutputOption
from enginectl.output import out

EXAMPLES = ("enginectl metrics qwen", "enginectl metrics qwen --listen 9100", "enginectl metrics qwen --listen off")


def command(
    name: NameArgument = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="ADDR",
            show_default=False,
            help="Serve /metrics, /livez, /readyz from its supervisor at PORT or HOST:PORT, until `--listen off`. "
            "`restart` keeps it; after `stop` and `start` say it again.",
        ),
    ] = None,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote",
            help="Serve beyond this machine: whoever reaches it sees model, counts and times, unasked who they are.",
        ),
    ] = False,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Print Prometheus text, with vLLM's names where the meaning is the same; or serve it."""
    with connect(one_name(name, engine)) as connected:
        args = MetricsArgs(listen=listen, allow_remote=allow_remote)
        found = connected.control.request("metrics", args, Metrics)
    out.document("Metrics", {"name": connected.name, "listening": found.listening or None, "text": found.text})
    if listen is None:
        out.text(*found.text.splitlines())
    elif found.listening:
        base = found.listening.removesuffix("/metrics")
        out.text(found.listening, f"{base}/livez", f"{base}/readyz")
    else:
        out.text(f"{connected.name}  metrics are no longer served")
