"""`enginectl uncordon`: new requests are taken again; cancels a drain. Already so is success."""

from __future__ import annotations

from enginectl.commands.cordon import report
from enginectl.context import connect, one_name
from enginectl.options import EngineOption, Format, NameArgument, OutputOption

EXAMPLES = ("enginectl uncordon qwen", "enginectl uncordon -o json")


def command(name: NameArgument = None, engine: EngineOption = None, output: OutputOption = Format.text) -> None:
    """Take new requests again; cancels a drain."""
    with connect(one_name(name, engine)) as connected:
        before = connected.status()
        after = connected.uncordon()
    cancelled = " (drain cancelled)" if before.state == "draining" else ""
    report(
        after,
        changed=before.cordoned or before.state in ("cordoned", "draining"),
        text=f"{after.name}  takes new requests{cancelled}",
    )
