"""`enginectl wait`: until all conditions hold at once; ends at once when one has become impossible."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from enginectl import text
from enginectl.conditions import Condition, parse_condition
from enginectl.context import find_entry, one_name
from enginectl.control import EngineView
from enginectl.control_verbs import WatchArgs
from enginectl.errors import CtlError, Deadline, EngineDied, Impossible, NotRunning, Unreachable
from enginectl.options import EngineOption, Format, NameArgument, OutputOption, duration
from enginectl.output import out
from enginectl.rundir import EngineEntry

EXAMPLES = ("enginectl wait qwen --for ready --timeout 5m", "enginectl wait --for idle --for 'kv<0.2'")
POLL_S = 0.25
SILENCE_S = 8.0
"""How long a supervisor may be silent: a removed runtime directory is back in less."""


def command(
    name: NameArgument = None,
    for_: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="COND",
            show_default="ready",
            help="ready, idle, stopped, or a figure: 'kv<0.8', 'running<4', 'waiting==0'. Several: all at once.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=duration,
            metavar="DURATION",
            envvar="ENGINECTL_TIMEOUT",
            show_default="10m",
            help="How long I wait.",
        ),
    ] = 600.0,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Wait until an engine is ready, idle or stopped, or a figure is reached. For scripts."""
    conditions = [parse_condition(one) for one in for_ or ["ready"]]
    entry = find_entry(one_name(name, engine), running=False)
    began = time.monotonic()
    view = _wait(entry.name, conditions, began + timeout, timeout)
    waited = time.monotonic() - began
    out.document(
        "Waited",
        {"name": entry.name, "state": view.state, "for": [c.text for c in conditions], "waited_s": round(waited, 3)},
    )
    out.text(
        f"{entry.name}  {view.state}   waited {text.seconds(waited)} for {' and '.join(c.text for c in conditions)}"
    )


def _wait(name: str, conditions: list[Condition], end: float, timeout_s: float) -> EngineView:
    """The first view in which all hold. Raises Impossible, Unreachable, Deadline."""
    last: EngineView | None = None
    for view in _views(name, end):
        last = view
        if all(condition.holds(view) for condition in conditions):
            return view
        for condition in conditions:
            if condition.is_impossible(view):
                raise _impossible(view, condition)
        if time.monotonic() > end:
            break
    state = f"{name!r} is {last.state}" if last else f"{name!r} says nothing"
    raise Deadline(
        f"{' and '.join(c.text for c in conditions)} not reached within --timeout {text.seconds(timeout_s)}; {state}",
        try_=[f"enginectl status {name}"],
    )


def _views(name: str, end: float) -> Iterator[EngineView]:
    """Views until the deadline: live ones from the supervisor, the record's while there is none. Raises Unreachable
    for a supervisor that is there and says nothing: what it wrote down earlier is not believed."""
    silent_since: float | None = None
    while True:
        try:
            for view in _live_views(name, end):
                silent_since = None
                yield view
        except Unreachable as error:
            now = time.monotonic()
            silent_since = now if silent_since is None else silent_since
            if now > end or now - silent_since > SILENCE_S:
                raise error from None
        except (NotRunning, EngineDied, Deadline):
            silent_since = None
        entry = EngineEntry.read(name)
        if entry.liveness != "running":
            yield entry.view()
        if time.monotonic() > end:
            return
        time.sleep(POLL_S)


def _live_views(name: str, end: float) -> Iterator[EngineView]:
    from enginectl.client import open_control

    left_s = max(POLL_S, end - time.monotonic())
    with (
        open_control(name) as client,
        contextlib.closing(
            client.stream("watch", WatchArgs(interval_s=POLL_S), EngineView, EngineView, timeout_s=left_s)
        ) as stream,
    ):
        for view in stream:
            if view.state in ("exited", "failed"):  # the last word of a supervisor that is about to go
                break
            yield view


def _impossible(view: EngineView, condition: Condition) -> CtlError:
    from enginectl.starting import start_failed

    failed = start_failed(view)
    how = text.exit_text(view.last_exit)
    phase = f" in phase {view.last_exit.phase!r}" if view.last_exit and view.last_exit.phase else ""
    ended = view.state if view.last_exit and view.last_exit.requested else f"died{phase}"
    return Impossible(
        f"{view.name!r} cannot become {condition.text}: {ended}{f' ({how})' if how else ''}",
        cause=failed.cause if view.state == "failed" else "",
        try_=[f"enginectl status {view.name}", f"enginectl start {view.name}"],
    )
