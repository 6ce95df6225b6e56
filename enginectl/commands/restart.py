"""`enginectl restart`: stop and start with the recorded settings, in the same supervisor; watched until ready."""

from __future__ import annotations

from typing import Annotated

import typer

from enginectl import text
from enginectl.context import find_entry, look, one_name
from enginectl.control import EngineView
from enginectl.control_verbs import RestartArgs
from enginectl.errors import CtlError, EngineDied, Exit, StartFailed, UsageError
from enginectl.options import EngineOption, Format, NameArgument, OutputOption, YesOption, duration
from enginectl.output import out, plain
from enginectl.rundir import EngineEntry

EXAMPLES = ("enginectl restart qwen", "enginectl restart qwen --grace 1m --yes")

HoldOption = Annotated[
    bool, typer.Option("--hold", help="Clients wait instead of failing; the new engine goes on where it stopped.")
]
HoldLimitOption = Annotated[
    float | None,
    typer.Option(
        "--hold-limit",
        parser=duration,
        metavar="DURATION",
        show_default="as started, else 2m",
        help="How long they wait at most.",
    ),
]
HoldSampledOption = Annotated[
    str | None,
    typer.Option(
        "--hold-sampled",
        metavar="resume|fail",
        show_default="as started",
        help="What held requests do that are sampled.",
    ),
]


def command(
    name: NameArgument = None,
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
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=duration,
            metavar="DURATION",
            envvar="ENGINECTL_TIMEOUT",
            show_default="10m",
            help="How long I wait for ready.",
        ),
    ] = 600.0,
    hold: HoldOption = False,
    hold_limit: HoldLimitOption = None,
    hold_sampled: HoldSampledOption = None,
    yes: YesOption = False,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Stop an engine and start it again with its recorded settings. Asks when requests are in flight."""
    entry = find_entry(one_name(name, engine), running=False)
    if entry.liveness != "running":
        from enginectl.asking import ask
        from enginectl.commands.start import start_and_watch

        out.say(f"{entry.name}  is not running; starting it")
        return start_and_watch(ask(entry.name, timeout_s=timeout), detach=False)
    view = look(entry)
    if not hold and view.stats and view.stats.running + view.stats.waiting:
        flying = text.count(view.stats.running + view.stats.waiting, "request")
        out.confirm(
            f"restart ends {flying} in flight of {entry.name}", yes=yes, retry=f"enginectl restart {entry.name} --yes"
        )
    if hold_sampled not in (None, "resume", "fail"):
        raise UsageError(f"--hold-sampled {hold_sampled!r}: one of resume, fail")
    args = RestartArgs(
        grace_s=grace, timeout_s=timeout, hold=hold, hold_limit_s=hold_limit,
        hold_sampled=hold_sampled,  # type: ignore[arg-type]
    )  # fmt: skip
    return _show(_restart(entry, args))


def _restart(entry: EngineEntry, args: RestartArgs) -> EngineView:
    """The view of the engine that is up again."""
    from enginectl.client import LAST_WORDS_S, open_control
    from enginectl.starting import StartShow, check_start, start_failed

    show = StartShow(entry.name, out)
    last: EngineView | None = None
    try:
        with open_control(entry.name) as client, client.stream("restart", args, EngineView, EngineView) as stream:
            for view in stream:
                last = view
                show.show(view)
            last = stream.end or last
    except KeyboardInterrupt:
        raise CtlError(
            f"no longer watching; {entry.name!r} goes on restarting",
            id="E1901",
            exit=Exit.INTERRUPTED,
            try_=[f"enginectl wait {entry.name} --for ready"],
        ) from None
    except EngineDied:
        entry.wait_gone(LAST_WORDS_S)
        raise start_failed(EngineEntry.read(entry.name).view()) from None
    finally:
        out.clear_live()
    if last is None:
        raise StartFailed(f"engine {entry.name!r} was not restarted", see=[f"enginectl status {entry.name}"])
    check_start(last)
    return last


def _show(view: EngineView) -> None:
    from enginectl.views import ready_lines

    out.document("Engine", plain(view) | {"changed": True})
    out.text(f"{view.name}  ready in {text.seconds(view.ready_after_s)}", *ready_lines(view))
