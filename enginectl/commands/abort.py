"""`enginectl abort`: requests end, their clients get an error; returns when they are gone, with the outcome of each."""

from __future__ import annotations

from typing import Annotated

import typer

from enginectl import text
from enginectl.client import Engine
from enginectl.context import connect
from enginectl.control_verbs import AbortArgs, AbortOutcome, AbortResult
from enginectl.errors import CtlError, Deadline, Exit, NoSuchRequest, UsageError
from enginectl.options import EngineOption, Format, OutputOption, YesOption, duration
from enginectl.output import out
from enginectl.patience import Patience
from enginectl.views import next_commands

EXAMPLES = ("enginectl abort chatcmpl-91c", "enginectl abort -e qwen --older 5m --yes")
FINE = ("aborted", "already-finished")


def command(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...", show_default=False, help="The engine's id, the client's, or a unique prefix."
        ),
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Everything in flight.")] = False,
    older: Annotated[
        float | None,
        typer.Option(
            "--older",
            parser=duration,
            metavar="DURATION",
            show_default=False,
            help="What is in flight for longer than this.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=duration,
            metavar="DURATION",
            envvar="ENGINECTL_TIMEOUT",
            show_default="10s",
            help="How long I wait until they are gone.",
        ),
    ] = 10.0,
    yes: YesOption = False,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> int:
    """End requests and be sure of it: `aborted`, `already-finished` or `not-found` for each."""
    if sum((bool(ids), all, older is not None)) != 1:
        raise UsageError("abort wants IDs, --all or --older, one of them", try_=["enginectl requests"])
    patience = Patience(timeout)
    with connect(engine) as connected:
        if not ids:
            _ask(connected, older, yes, patience)
        args = AbortArgs(ids=ids or [], all=all, older_s=older, timeout_s=patience.left_s)
        items = connected.control.request("abort", args, AbortResult, timeout_s=patience.wait_s).items
        is_late = any(item.result == "timeout" for item in items)
        tries = next_commands(connected.status()) if is_late else [f"enginectl requests {connected.name}"]
    order = {asked: place for place, asked in enumerate(ids or [])}
    return _report(sorted(items, key=lambda item: order.get(item.asked, 0)), tries, timeout)


def _ask(engine: Engine, older_s: float | None, yes: bool, patience: Patience) -> None:
    hit = [request for request in engine.requests() if older_s is None or request.age_s > older_s]
    if hit:
        which = f" older than {text.seconds(older_s)}" if older_s is not None else ""
        option = "--all" if older_s is None else f"--older {older_s:g}s"
        with patience.stopped():
            out.confirm(
                f"abort ends {text.count(len(hit), 'request')}{which} of {engine.name}",
                yes=yes,
                retry=f"enginectl abort -e {engine.name} {option} --yes",
            )


def _report(items: list[AbortOutcome], tries: list[str], timeout_s: float) -> int:
    """One line each; 0 when all are gone, the one failure's code, PARTIAL of several. `tries`: what helps then."""
    failed = [item for item in items if item.result not in FINE]
    if failed and len(items) == 1 and not out.json:
        raise _refusal(failed[0], tries, timeout_s)
    out.document("AbortList", AbortResult(items=items))
    for item in items:
        detail = f"   {text.one_line(item.detail)}" if item.detail else ""
        out.text(f"{text.one_line(item.id or item.asked)}  {item.result}{detail}")
    if not items:
        out.say("nothing in flight")
    if any(item.result == "timeout" for item in failed):
        out.say(f"not gone in {text.seconds(timeout_s)}; try:  {tries[0]}", *(f"    or {line}" for line in tries[1:]))
    if not failed:
        return int(Exit.OK)
    if len(failed) < len(items):
        return int(Exit.PARTIAL)
    codes = {_code(item) for item in failed}
    return int(codes.pop()) if len(codes) == 1 else int(Exit.PARTIAL)


def _code(item: AbortOutcome) -> Exit:
    return Exit.DEADLINE if item.result == "timeout" else Exit.NOT_FOUND


def _refusal(item: AbortOutcome, tries: list[str], timeout_s: float) -> CtlError:
    match item.result:
        case "ambiguous":
            return NoSuchRequest(f"{item.asked!r} could be several requests", cause=item.detail, try_=tries)
        case "timeout":
            message = f"{item.asked!r} was not gone in {text.seconds(timeout_s)}"
            return Deadline(message, cause=item.detail, try_=tries)
        case _:
            return NoSuchRequest(f"no request {item.asked!r} in flight", cause=item.detail, try_=tries)
