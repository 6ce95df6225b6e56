"""`enginectl cordon`: new requests are refused, the others go on. Already so is success."""

from __future__ import annotations

from enginectl.context import connect, one_name
from enginectl.control import EngineView
from enginectl.options import EngineOption, Format, NameArgument, OutputOption
from enginectl.output import out, plain

EXAMPLES = ("enginectl cordon qwen", "enginectl cordon && enginectl wait --for idle && enginectl restart")


def command(name: NameArgument = None, engine: EngineOption = None, output: OutputOption = Format.text) -> None:
    """Refuse new requests; what is in flight goes on."""
    with connect(one_name(name, engine)) as connected:
        before = connected.status()
        after = connected.cordon()
    report(after, changed=not before.cordoned, text=f"{after.name}  cordoned: new requests are refused")


def report(view: EngineView, *, changed: bool, text: str) -> None:
    out.document("Engine", plain(view) | {"changed": changed})
    out.text(text if changed else f"{text} (already so)")
