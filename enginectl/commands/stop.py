"""`enginectl stop`: engines end; each stage is said; returns when the whole process group is gone."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from enginectl import text
from enginectl.context import find_entry, look
from enginectl.control import EngineView
from enginectl.control_verbs import StopArgs, StopStage
from enginectl.errors import CtlError, EngineDied, Exit, NotRunning, Unreachable, UsageError
from enginectl.options import EngineOption, Format, OutputOption, YesOption, duration
from enginectl.output import out
from enginectl.rundir import EngineEntry, list_engines

EXAMPLES = ("enginectl stop qwen", "enginectl stop --all --grace 30s --yes")
GONE_WAIT_S = 10.0
"""How long the supervisor gets to end after its last word."""


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", show_default=False, help="Engines; may be left out when one is running."),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            parser=duration,
            metavar="DURATION",
            envvar="ENGINECTL_GRACE",
            show_default="10s",
            help="How long requests in flight get before they are aborted.",
        ),
    ] = 10.0,
    all: Annotated[bool, typer.Option("--all", help="All running engines.")] = False,
    yes: YesOption = False,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> int:
    """Stop engines: let requests finish for --grace, abort the rest, shut down. Asks when requests are in flight."""
    entries = _targets(names or ([engine] if engine and not all else []), all)
    views = {entry.name: look(entry) for entry in entries}
    _ask(list(views.values()), yes)
    results = [_stop_one(entry, grace, label=entry.name if len(entries) > 1 else "") for entry in entries]
    out.document(*_document(results))
    return _worst(results)


def _targets(names: list[str], all: bool) -> list[EngineEntry]:
    if all and names:
        raise UsageError("--all and names exclude each other")
    if all:
        return [entry for entry in list_engines() if entry.liveness in ("running", "lost")]
    if names:
        return [find_entry(name) for name in dict.fromkeys(names)]
    return [find_entry(None)]


def _ask(views: list[EngineView], yes: bool) -> None:
    busy = [view for view in views if view.stats and view.stats.running + view.stats.waiting]
    if not busy:
        return
    what = ", ".join(
        f"{view.name} ({text.count(view.stats.running + view.stats.waiting, 'request')})" for view in busy if view.stats
    )
    out.confirm(
        f"stop ends requests in flight: {what}",
        yes=yes,
        retry=f"enginectl stop {' '.join(view.name for view in views)} --yes",
    )


Result = dict[str, object]


def _stop_one(entry: EngineEntry, grace_s: float, label: str = "") -> Result:
    """Each stage is said behind `label`. The outcome as a map, failures too, so that the others are stopped as well."""
    if entry.liveness in ("dead", "stale"):
        out.say(f"{entry.name}  not running")
        return {"name": entry.name, "state": "exited", "changed": False}
    if entry.liveness == "lost":
        return _await_lost(entry)
    try:
        stages = _stages(entry, grace_s, label)
    except NotRunning:
        return {"name": entry.name, "state": "exited", "changed": False}
    except CtlError as error:
        if error.exit == Exit.INTERRUPTED:
            raise
        out.error_text(error)
        return {"name": entry.name, "error": {"id": error.id, "message": error.message}, "exit": int(error.exit)}
    view = EngineEntry.read(entry.name).view()
    took = text.seconds(stages[-1].elapsed_s) if stages else "a moment"
    how = text.exit_text(view.last_exit)
    aborted = view.last_exit.aborted if view.last_exit else None
    cut = f", {text.count(aborted, 'request')} aborted" if aborted else ""
    out.text(f"{entry.name}  stopped in {took}{f', {how}' if how else ''}{cut}")
    return {
        "name": entry.name, "state": view.state, "changed": True, "stages": [stage.stage for stage in stages],
        "aborted": aborted,
    }  # fmt: skip


def _stages(entry: EngineEntry, grace_s: float, label: str) -> list[StopStage]:
    """Asks for the stop and says each stage; returns when engine and supervisor are gone."""
    from enginectl.client import open_control

    stages: list[StopStage] = []
    silence: Unreachable | None = None
    with open_control(entry.name) as client:
        try:
            with contextlib.closing(client.stream("stop", StopArgs(grace_s=grace_s), StopStage, StopStage)) as stream:
                for stage in stream:
                    stages.append(stage)
                    line = f"{stage.stage:<10} {text.seconds(stage.elapsed_s):>7}   {stage.detail}"
                    out.say(f"{label}  {line}".rstrip())
        except EngineDied:
            pass  # it ended, which is what was asked for
        except Unreachable as error:
            silence = error
        except KeyboardInterrupt:
            raise CtlError(
                f"no longer watching; {entry.name!r} goes on stopping",
                id="E1901",
                exit=Exit.INTERRUPTED,
                try_=[f"enginectl wait {entry.name} --for stopped"],
            ) from None
    if silence is not None and not entry.wait_gone(0.0):
        raise silence
    if not entry.wait_gone(GONE_WAIT_S):
        raise CtlError(
            f"the supervisor of {entry.name!r} did not end within {GONE_WAIT_S:.0f} s of its last word",
            id="E1403",
            exit=Exit.DEADLINE,
            try_=[f"enginectl kill {entry.name} --yes"],
        )
    return stages


def _await_lost(entry: EngineEntry) -> Result:
    from enginectl.errors import Conflict
    from enginectl.starting import wait_lost

    out.say(f"{entry.name}  its supervisor is gone; the engine ends by itself")
    try:
        wait_lost(entry.name)
    except Conflict as error:
        out.error_text(error)
        return {"name": entry.name, "error": {"id": error.id, "message": error.message}, "exit": int(error.exit)}
    return {"name": entry.name, "state": "exited", "changed": True}


def _document(results: list[Result]) -> tuple[str, Result]:
    return ("Stopped", results[0]) if len(results) == 1 else ("StoppedList", {"items": results})


def _worst(results: list[Result]) -> int:
    """0, the one failure's code, or PARTIAL of several."""
    failed = [result for result in results if "error" in result]
    if not failed:
        return int(Exit.OK)
    code = failed[0]["exit"]
    return code if len(results) == 1 and isinstance(code, int) else int(Exit.PARTIAL)
