"""`enginectl probe`: one line and an exit code, for k8s, containers and scripts. It judges, reads, never waits long."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from enginectl.context import find_entry, one_name
from enginectl.control import EngineView
from enginectl.control_verbs import StatusArgs
from enginectl.errors import CtlError, EngineDied, Exit, NoSuchEngine, NotRunning, UsageError
from enginectl.options import EngineOption, Format, NameArgument, OutputOption, duration
from enginectl.output import out
from enginectl.probing import Answer, Kind, judge_view, line
from enginectl.rundir import EngineEntry
from enginectl.text import one_line

EXAMPLES = ("enginectl probe qwen --liveness", "enginectl probe --readiness --timeout 500ms")


def command(
    name: NameArgument = None,
    liveness: Annotated[bool, typer.Option("--liveness", help="Its process is there and its loop turns.")] = False,
    readiness: Annotated[bool, typer.Option("--readiness", help="A new request would be served now.")] = False,
    startup: Annotated[bool, typer.Option("--startup", help="It has been ready since it was started.")] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=duration,
            metavar="DURATION",
            envvar="ENGINECTL_TIMEOUT",
            show_default="1s",
            help="How long its supervisor gets to answer.",
        ),
    ] = 1.0,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> int:
    """Say in one line whether an engine is alive (the default), ready, or started.

    Exits with 0 for yes, 5 for not now, 11 for stalled, 3 for not running, 69 for a supervisor that does not answer."""
    kind = _kind(liveness, readiness, startup)
    began = time.monotonic()
    entry = _entry(one_name(name, engine))
    view, answer = _look(entry, kind, timeout) if entry else (None, Answer(Exit.NOT_RUNNING, "none", "no engine runs"))
    stats = view.stats if view else None
    out.document(
        "Probe",
        {
            "name": entry.name if entry else None,
            "probe": kind,
            "ok": answer.is_ok,
            "state": view.state if view else "unknown",
            "reason": answer.reason,
            "exit": int(answer.exit),
            "step": stats.step_counter if stats else None,
            "loop_age_s": stats.loop_age_s if stats else None,
            "running": stats.running if stats else None,
            "waiting": stats.waiting if stats else None,
            "took_ms": round((time.monotonic() - began) * 1000, 1),
        },
    )
    out.text(one_line(line(answer, stats)))
    return int(answer.exit)


def _kind(liveness: bool, readiness: bool, startup: bool) -> Kind:
    if liveness + readiness + startup > 1:
        raise UsageError("--liveness, --readiness and --startup exclude each other")
    return "readiness" if readiness else "startup" if startup else "liveness"


def _entry(name: str | None) -> EngineEntry | None:
    """None when there is nothing to probe. Raises NoSuchEngine for a name nobody knows, UsageError for several."""
    try:
        return find_entry(name, running=False)
    except NoSuchEngine:
        raise
    except NotRunning:
        return None


def _look(entry: EngineEntry, kind: Kind, timeout_s: float) -> tuple[EngineView, Answer]:
    """Its supervisor's word; silence is an answer too."""
    if entry.liveness != "running":
        return (view := entry.view()), judge_view(kind, view)
    from enginectl.channel import ControlClient

    try:
        with ControlClient(
            entry.control_socket,
            name=entry.name,
            supervisor=entry.supervisor,
            connect_timeout_s=timeout_s,
            reply_timeout_s=timeout_s,
        ) as client:
            view = client.request("status", StatusArgs(), EngineView, timeout_s=timeout_s)
    except EngineDied:
        return (view := EngineEntry.read(entry.name).view()), judge_view(kind, view)
    except CtlError as error:
        view = entry.view()
        return view, Answer(Exit.UNREACHABLE, "unreachable", view.reason or error.message)
    return view, judge_view(kind, view)
