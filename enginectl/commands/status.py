"""`enginectl status`: one engine on a page, alive or dead. Reporting, not judging: exits 0 unless --exit-status."""

from __future__ import annotations

from typing import Annotated

import typer

from enginectl.context import find_entry, look, one_name
from enginectl.control import EngineView, RequestView
from enginectl.errors import (
    CtlError,
    EngineDied,
    Exit,
    NoSuchRequest,
    NotRunning,
    Stalled,
    Unreachable,
    UsageError,
    WrongState,
)
from enginectl.options import EngineOption, Format, NameArgument, OutputOption
from enginectl.output import out, plain
from enginectl.text import one_line
from enginectl.views import SERVING, short_id, status_lines

EXAMPLES = ("enginectl status", "enginectl status qwen -p stats.step.p50_ms")


def command(
    name: NameArgument = None,
    property: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            "--property",
            metavar="KEY",
            help="Print only this, as in the JSON: state, process.pid, stats.kv_used_ratio. May be given again.",
        ),
    ] = None,
    exit_status: Annotated[
        bool,
        typer.Option(
            "--exit-status",
            help="Judge: 0 serving, 3 not running, 5 not serving now, 9 died, 11 stalled, 69 no answer.",
        ),
    ] = False,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> int:
    """Show one engine: state, verdict, figures, what to run next; how it ended when it is dead."""
    view = look(find_entry(one_name(name, engine), running=False))
    if property:
        _show_properties(view, property)
    else:
        out.document("Engine", view)
        if not out.json:
            out.text(*status_lines(view)[:1], *_verdict(view), *status_lines(view)[1:])
    return _judge(view) if exit_status else 0


def _show_properties(view: EngineView, keys: list[str]) -> None:
    """Missing keys are an error that names the nearest."""
    values = {key: _dig(plain(view), key) for key in keys}
    out.document("Properties", {"name": view.name, "properties": values})
    for value in values.values():
        out.text("-" if value is None else str(value).lower() if isinstance(value, bool) else _scalar(value))


def _scalar(value: object) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _dig(fields: object, key: str) -> object:
    from enginectl.verbs import nearest

    for part in key.split("."):
        if fields is None:
            return None
        if not isinstance(fields, dict) or part not in fields:
            known = sorted(fields) if isinstance(fields, dict) else []
            near = nearest(part, known)
            hint = f"; did you mean {near!r}?" if near else f"; known here: {', '.join(known)}" if known else ""
            raise UsageError(f"status has no property {key!r}{hint}")
        fields = fields[part]
    return fields


def _verdict(view: EngineView) -> list[str]:
    """The request that holds the others up, when there is one."""
    if view.state not in ("busy", "saturated", "stalled", "draining") or view.stats is None:
        return []
    hogs = [request for request in _requests(view) if request.is_hog]
    return [
        f"  hog: {one_line(short_id(hog), 80)}  {one_line(hog.note)}   (enginectl abort -e {view.name} "
        f"{one_line(short_id(hog), 80)})"
        for hog in hogs[:3]
    ]


def _requests(view: EngineView) -> list[RequestView]:
    """A stalled engine's supervisor still knows them; none when it does not answer."""
    from enginectl.context import connect

    try:
        with connect(view.name) as engine:
            return engine.requests()
    except (CtlError, NoSuchRequest):
        return []


def _judge(view: EngineView) -> int:
    """0, or raises what the state amounts to: no second document, the view was printed."""
    error: CtlError | None = None
    match view.state:
        case state if state in SERVING:
            error = WrongState(f"{view.name!r} is cordoned") if view.cordoned else None
        case "stalled":
            error = Stalled(f"{view.name!r} is stalled", cause=view.reason)
        case "failed":
            error = EngineDied(f"{view.name!r} failed", cause=view.reason)
        case "exited":
            error = NotRunning(f"{view.name!r} is not running")
        case "lost" | "unreachable":
            error = Unreachable(f"{view.name!r} cannot be asked", cause=view.reason)
        case _:
            error = WrongState(f"{view.name!r} is {view.state}")
    if error is None:
        return int(Exit.OK)
    return int(error.exit)
