"""`enginectl drain`: new work is refused, what runs finishes, the engine ends. Ctrl-C stops watching only."""

from __future__ import annotations

from typing import Annotated

import typer

from enginectl import text
from enginectl.channel import ControlStream
from enginectl.context import connect, one_name
from enginectl.control import DrainProgress
from enginectl.control_verbs import DrainArgs, DrainEnd
from enginectl.errors import CtlError, Deadline, EngineDied, Exit, Unreachable, UsageError, WrongState
from enginectl.options import EngineOption, Format, NameArgument, OutputOption, duration
from enginectl.output import out, plain
from enginectl.rundir import EngineEntry

EXAMPLES = ("enginectl drain qwen --grace 2m", "enginectl drain --on-timeout fail")
GONE_WAIT_S = 15.0


def command(
    name: NameArgument = None,
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            parser=duration,
            metavar="DURATION",
            envvar="ENGINECTL_GRACE",
            show_default="5m",
            help="How long requests get to finish.",
        ),
    ] = 300.0,
    on_timeout: Annotated[
        str,
        typer.Option(
            "--on-timeout",
            metavar="abort|fail",
            help="What happens to requests that miss it: abort them, or fail now and let them finish all the same.",
        ),
    ] = "abort",
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Refuse new requests, let the others finish, then end the engine. `uncordon` cancels it."""
    if on_timeout not in ("abort", "fail"):
        raise UsageError(f"--on-timeout is abort or fail, not {on_timeout!r}")
    with connect(one_name(name, engine)) as connected:
        entry = EngineEntry.read(connected.name)
        args = DrainArgs(grace_s=grace, on_timeout="fail" if on_timeout == "fail" else "abort")
        stream = connected.control.stream("drain", args, DrainProgress, DrainEnd)
        try:
            last = _follow(entry, stream)
        except KeyboardInterrupt:
            raise CtlError(
                f"no longer watching; {entry.name!r} goes on draining",
                id="E1901",
                exit=Exit.INTERRUPTED,
                try_=[f"enginectl uncordon {entry.name}", f"enginectl wait {entry.name} --for stopped"],
            ) from None
    if stream.end is not None and not stream.end.drained:
        _refuse_not_drained(entry.name, stream.end, grace, goes_on=on_timeout == "fail")
    _finish(entry, stream.end, last, grace)


def _follow(entry: EngineEntry, stream: ControlStream[DrainProgress, DrainEnd]) -> DrainProgress | None:
    """Shows progress until the stream ends; the last progress. Raises Unreachable while the supervisor is there."""
    last: DrainProgress | None = None
    named: set[str] = set()
    with stream:
        try:
            for progress in stream:
                if last is None:
                    out.say(f"draining {entry.name}: new requests refused", *first_lines(progress, out.words_width))
                last = progress
                if late := [name for name in progress.will_miss if name not in named]:
                    named.update(late)
                    out.say(*will_miss_lines(late, out.words_width))
                out.live(_line(progress))
        except EngineDied:
            pass
        except Unreachable:
            if not entry.wait_gone(0.0):
                raise
        finally:
            out.clear_live()
    return last


def will_miss_lines(late: list[str], width: int | None) -> list[str]:
    more = [f"and {len(late) - 10} more"] if len(late) > 10 else []
    first, *rest = [*map(text.user_id, late[:10]), *more]
    return text.wrap([f"will miss the deadline: {first}", *rest], width)


def first_lines(progress: DrainProgress, width: int | None) -> list[str]:
    """What is left, and two estimates that answer two questions: all tokens at the rate of now, and the slowest request
    at its own pace, which is the longer one when few have much to come."""
    parts = [
        f"{progress.running} running",
        f"{progress.waiting} waiting",
        f"about {text.count(progress.tokens_left, 'token')} left",
        f"{progress.tok_s:,.0f} tok/s",
    ]
    estimates = []
    if progress.eta_s is not None:
        estimates.append(f"all tokens at this rate in {text.seconds(progress.eta_s)}")
    if progress.worst_eta_s is not None:
        estimates.append(f"the slowest request in {text.seconds(progress.worst_eta_s)}")
    return text.wrap(parts, width) + text.wrap(estimates, width)


def _line(progress: DrainProgress) -> str:
    left = progress.running + progress.waiting
    worst = ""
    if progress.worst_id:
        eta = f" (in {text.seconds(progress.worst_eta_s)})" if progress.worst_eta_s is not None else ""
        worst = f"   slowest: {text.user_id(progress.worst_id)}{eta}"
    return f"  {text.clock(progress.began_s_ago)}  {left} left{worst}"


def _finish(entry: EngineEntry, end: DrainEnd | None, last: DrainProgress | None, grace_s: float) -> None:
    """The last line and the document of a drain after which the engine ended; raises when requests were aborted."""
    if not entry.wait_gone(GONE_WAIT_S):
        raise Deadline(
            f"{entry.name!r} drained, but its supervisor did not end within {GONE_WAIT_S:.0f} s",
            try_=[f"enginectl status {entry.name}"],
        )
    view = EngineEntry.read(entry.name).view()
    if end is None and not (view.last_exit and view.last_exit.requested):
        cause = view.last_exit.cause if view.last_exit else view.reason
        raise EngineDied(f"{entry.name!r} died while it drained", cause=cause, see=[f"enginectl status {entry.name}"])
    took = end.took_s if end else last.began_s_ago if last else 0.0
    how = text.exit_text(view.last_exit)
    ended = f"{entry.name}  drained in {text.clock(took)}{f', {how}' if how else ''}"
    if end is not None and not end.drained:
        raise Deadline(
            f"{entry.name!r} reached --grace {text.seconds(grace_s)}: {text.count(end.aborted, 'request')} aborted, "
            f"{end.finished:,} finished; the engine has ended",
            try_=[f"enginectl start {entry.name}"],
        )
    fields = plain(end) if end else {"drained": True, "took_s": took}
    out.document("Drained", {"name": entry.name, "state": view.state} | fields)
    out.text(ended)


def _refuse_not_drained(name: str, end: DrainEnd, grace_s: float, *, goes_on: bool) -> None:
    """Raises for a drain after which the engine did not end."""
    if end.cancelled:
        raise WrongState(f"the drain of {name!r} was cancelled by uncordon; it takes new requests")
    if goes_on:
        raise Deadline(
            f"{name!r} reached --grace {text.seconds(grace_s)}: {end.detail or 'requests still run'}",
            try_=[f"enginectl requests {name}", f"enginectl wait {name} --for stopped", f"enginectl uncordon {name}"],
        )
