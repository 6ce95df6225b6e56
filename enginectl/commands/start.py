"""`enginectl start`: settings are resolved and recorded, a supervisor is launched, the start is watched until ready.

Leaves the engine running whatever happens to this command. `run` is the same in the foreground."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from enginectl import text
from enginectl.asking import Asked, ask, check_interpreter, make_settings
from enginectl.context import LOOK_TIMEOUT_S, look, one_name
from enginectl.control import EngineView
from enginectl.errors import CtlError, Exit
from enginectl.group import rest_of
from enginectl.options import Format, OutputOption, duration
from enginectl.output import out, plain
from enginectl.rundir import EngineEntry
from enginectl.views import ready_lines

EXAMPLES = (
    "enginectl start",
    "enginectl start qwen --model ~/models/qwen --set max_model_len=8192 --restart on-failure",
    "enginectl start qwen -- vllm serve ~/models/qwen --port 8000",
)
TAKES_REST = True
REPEATED_HINT = "   (--set K= drops one, --model M all)"

StartName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        show_default=False,
        help="Engine; `default` runs the embedded model. A known name starts as the last time.",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="M",
        show_default=False,
        help="A directory, a .gguf file, or a name of `model ls`. [env: ENGINECTL_MODEL]",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="K=V",
        show_default=False,
        help="A setting, as max_model_len=4096, or K= to drop a recorded one; `config show` lists them. "
        "May be given again. [env: ENGINECTL_K]",
    ),
]
GpusOption = Annotated[
    str | None,
    typer.Option(
        "--gpus", metavar="0,1", show_default=False, help="GPUs to use; - for no choice. [env: ENGINECTL_GPUS]"
    ),
]
RestartOption = Annotated[
    str | None,
    typer.Option(
        "--restart", metavar="POLICY", show_default=False, help="no, on-failure[:N] or always. [env: ENGINECTL_RESTART]"
    ),
]
PythonOption = Annotated[
    str | None,
    typer.Option(
        "--python", metavar="PATH", show_default=False, help="Interpreter for the engine. [env: ENGINECTL_PYTHON]"
    ),
]


KindOption = Annotated[
    str | None,
    typer.Option("--engine", metavar="KIND", show_default=False, help="enginectl, or vllm: `vllm serve --headless`."),
]
NameOption = Annotated[
    str | None,
    typer.Option("-e", metavar="NAME", envvar="ENGINECTL_ENGINE", show_default=False, help="The same as NAME."),
]
JoinOption = Annotated[
    str | None,
    typer.Option(
        "--join",
        metavar="ADDRESS",
        show_default=False,
        help="Be the engine of the frontend whose handshake is at tcp://HOST:PORT.",
    ),
]
RemoteOption = Annotated[
    bool | None,
    typer.Option(
        "--allow-remote",
        show_default=False,
        help="Let --join lead to another machine: prompts and outputs in clear, whoever answers drives the engine.",
    ),
]
HoldOption = Annotated[
    bool | None,
    typer.Option(
        "--hold/--no-hold", show_default=False, help="Clients wait, not fail, while a restart replaces the engine."
    ),
]
HoldLimitOption = Annotated[
    str | None,
    typer.Option("--hold-limit", metavar="DURATION", show_default="2m", help="How long they wait at most."),
]
HoldSampledOption = Annotated[
    str | None,
    typer.Option(
        "--hold-sampled", metavar="resume|fail", show_default="resume", help="What held requests do that are sampled."
    ),
]


def command(
    context: typer.Context,
    name: StartName = None,
    model: ModelOption = None,
    set: SetOption = None,
    gpus: GpusOption = None,
    restart: RestartOption = None,
    python: PythonOption = None,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Return at once, do not wait for ready.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            parser=duration,
            metavar="DURATION",
            show_default="10m",
            help="How long I wait for ready. [env: ENGINECTL_TIMEOUT]",
        ),
    ] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay, logs to stderr; works as PID 1.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show settings and memory arithmetic, start nothing.")
    ] = False,
    join: JoinOption = None,
    allow_remote: RemoteOption = None,
    kind: KindOption = None,
    hold: HoldOption = None,
    hold_limit: HoldLimitOption = None,
    hold_sampled: HoldSampledOption = None,
    engine: NameOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Start an engine in the background and wait until it is ready. Ctrl-C stops watching, not the engine."""
    asked = ask(
        one_name(name, engine),
        model=model,
        sets=set or (),
        gpus=gpus,
        restart=restart,
        python=python,
        timeout_s=timeout,
        outside={
            "engine": kind, "join": join, "allow_remote": allow_remote, "hold": hold, "hold_limit": hold_limit,
            "hold_sampled": hold_sampled, "rest": rest_of(context),
        },
    )  # fmt: skip
    if dry_run:
        from enginectl.dry_run import show_plan

        return show_plan(asked, out)
    if foreground:
        return start_in_foreground(asked)
    return start_and_watch(asked, detach=detach)


def start_and_watch(asked: Asked, *, detach: bool) -> None:
    """Launches or attaches, and shows how it ends. Raises what StartWatch raises."""
    from enginectl.starting import StartWatch, launch_or_attach

    settings = make_settings(asked, out)
    check_interpreter(settings)
    launched = launch_or_attach(settings, asked.given, wait_s=0.0 if detach else asked.timeout_s, out=out)
    if launched:
        _say_repeated(asked)
    if detach:
        return _report(look(EngineEntry.read(asked.name)), launched)
    try:
        view = StartWatch(asked.name, out, asked.timeout_s).until_ready()
    except KeyboardInterrupt:
        raise CtlError(
            f"detached; {asked.name!r} goes on starting",
            id="E1901",
            exit=Exit.INTERRUPTED,
            try_=[f"enginectl wait {asked.name} --for ready", f"enginectl stop {asked.name}"],
        ) from None
    return _report(view, launched)


def _say_repeated(asked: Asked) -> None:
    """What was typed at an earlier start and goes on to hold, and how to be rid of it."""
    if asked.repeated:
        out.say(*repeated_lines(asked.repeated, out.words_width))


def repeated_lines(repeated: Mapping[str, object], width: int | None) -> list[str]:
    said = [text.one_line(f"{key}={value}", 120) for key, value in repeated.items()]
    said[0] = f"as the last time: {said[0]}"
    if width is None:
        return ["  " + ", ".join(said) + REPEATED_HINT]
    return [*text.wrap(said, width), " " + REPEATED_HINT]


def _report(view: EngineView, launched: bool) -> None:
    out.document("Engine", plain(view) | {"changed": launched})
    if out.json:
        return
    if view.ready is None:
        out.text(f"{view.name}  {view.state}{f'  pid {view.process.pid}' if view.process else ''}")
    elif launched:
        last = f" (last {text.seconds(view.last_ready_after_s)})" if view.last_ready_after_s is not None else ""
        out.text(f"{view.name}  ready in {text.seconds(view.ready_after_s)}{last}", *ready_lines(view))
    else:
        out.text(
            f"{view.name}  {view.state} already, up {text.seconds(view.uptime_s)}, same settings", *ready_lines(view)
        )


def start_in_foreground(asked: Asked) -> None:
    """Becomes the supervisor; returns only by an error."""
    import os
    import sys

    from enginectl.rundir import load_settings, save_settings
    from enginectl.starting import SERVED_S, check_same, launch_turn

    settings = make_settings(asked, out)
    check_interpreter(settings)
    with launch_turn(settings.name):
        entry = EngineEntry.read(settings.name)
        if entry.liveness == "running" and not (entry.is_over and entry.wait_gone(SERVED_S)):
            check_same(settings, load_settings(settings.name), asked.given)
            raise CtlError(
                f"engine {settings.name!r} is running already, in the background",
                id="E1201",
                exit=Exit.CONFLICT,
                try_=[f"enginectl stop {settings.name}"],
            )
        save_settings(settings)
    _say_repeated(asked)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "enginectl.supervisor", "--name", settings.name, "--foreground"])


__all__ = ["LOOK_TIMEOUT_S", "command", "start_and_watch"]
