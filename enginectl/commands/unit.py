"""`enginectl unit`: a systemd unit for one engine on stdout. Writes nothing."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

import typer

from enginectl.context import DEFAULT_NAME, one_name, with_suggestion
from enginectl.dirs import RUNTIME_SETTING, STATE_SETTING, check_name, state_root
from enginectl.errors import NoSuchEngine
from enginectl.options import EngineOption, Format, NameArgument, OutputOption
from enginectl.output import out
from enginectl.owners import owner_name
from enginectl.rundir import known_names, load_settings
from enginectl.settings import EngineSettings

EXAMPLES = ("enginectl unit qwen", "enginectl unit qwen --system > enginectl-qwen.service")
WATCHDOG_S = 90
"""Longer than the supervisor takes to call an engine stalled, shorter than a person takes."""
SLACK_S = 30.0
"""What start and stop get beyond the engine's own limits, for interpreter, sockets and the last words."""


def command(
    name: NameArgument = None,
    system: Annotated[
        bool, typer.Option("--system", help="For the system's manager, running as you; alone: for your own.")
    ] = False,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Print a systemd unit that starts an engine with its recorded settings: ready when it serves, watched while its
    loop turns, stopped with its grace."""
    chosen = check_name(one_name(name, engine) or DEFAULT_NAME)
    settings = load_settings(chosen)
    if settings is None and chosen != DEFAULT_NAME:
        raise with_suggestion(
            NoSuchEngine(
                f"no engine was ever started as {chosen!r}, so its settings are not known",
                try_=[f"enginectl start {chosen} --model MODEL", "enginectl ps"],
            ),
            chosen,
            known_names(),
        )
    lines = unit_lines(chosen, settings, system=system)
    file = f"enginectl-{chosen}.service"
    out.document("Unit", {"name": chosen, "file": file, "system": system, "text": "\n".join(lines) + "\n"})
    out.text(*lines)
    out.say(*_next_steps(chosen, file, system))


def unit_lines(name: str, settings: EngineSettings | None, *, system: bool) -> list[str]:
    """The unit. Without settings: of the default engine, whose model may have to be fetched at its first start."""
    start_s = settings.start_timeout_s if settings is not None else 600.0
    stop_s = settings.stop_grace_s + 2 * settings.term_s if settings is not None else 20.0
    lines = [
        "[Unit]",
        f"Description=LLM engine {name} (enginectl)",
        "Documentation=man:enginectl(1)",
        "After=network.target",
        "",
        "[Service]",
        "Type=notify",
        "NotifyAccess=main",
        f"ExecStart={' '.join(quoted(word).replace('$', '$$') for word in [*own_command(), 'run', name])}",
        "# logs are opened anew, for logrotate",
        "ExecReload=/bin/kill -HUP $MAINPID",
        *environment(name, system),
        "# the supervisor alone gets TERM, and ends its engine; whatever is left gets KILL",
        "KillMode=mixed",
        f"TimeoutStartSec={start_s + SLACK_S:.0f}",
        f"TimeoutStopSec={stop_s + SLACK_S:.0f}",
        "# fed while the engine's loop turns",
        f"WatchdogSec={WATCHDOG_S}",
        "Restart=on-failure",
        "RestartSec=5",
        "# usage, no such engine, conflict: trying again changes nothing",
        "RestartPreventExitStatus=2 4 7",
        "UMask=0077",
    ]
    if system:
        lines += [f"User={user()}", f"RuntimeDirectory=enginectl-{name}", "RuntimeDirectoryMode=0700"]
    return [*lines, "", "[Install]", f"WantedBy={'multi-user' if system else 'default'}.target"]


def own_command() -> list[str]:
    """How this very command is run again: the script it was found as, else the module."""
    script = os.path.abspath(sys.argv[0]) if os.path.basename(sys.argv[0]) == "enginectl" else ""
    found = (
        script
        if script and os.access(script, os.X_OK)
        else shutil.which("enginectl", path=os.path.dirname(sys.executable))
    )
    return [found] if found else [sys.executable, "-m", "enginectl"]


def environment(name: str, system: bool) -> list[str]:
    """What a manager does not know of this shell: where the engine is recorded, where modules are found."""
    wanted = {STATE_SETTING: str(state_root())}
    if system:
        wanted[RUNTIME_SETTING] = f"%t/enginectl-{name}"
    for key in (RUNTIME_SETTING, "ENGINECTL_CACHE_DIR", "ENGINECTL_CONFIG", "PYTHONPATH"):
        if (value := os.environ.get(key)) and key not in wanted:
            wanted[key] = value
    return [
        f"Environment={quoted(f'{key}={value}', specifiers=value.startswith('%t/'))}" for key, value in wanted.items()
    ]


def quoted(word: str, *, specifiers: bool = False) -> str:
    """As systemd reads a word: quotes, backslashes and `$` kept, `%` doubled unless it is one of its specifiers."""
    text = word if specifiers else word.replace("%", "%%")
    if all(char.isalnum() or char in "_-./%=:,@+" for char in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def user() -> str:
    name = owner_name(os.geteuid())
    return str(os.geteuid()) if " " in name else name


def _next_steps(name: str, file: str, system: bool) -> list[str]:
    manager, sudo = ("systemctl", "sudo ") if system else ("systemctl --user", "")
    place = "/etc/systemd/system" if system else "~/.config/systemd/user"
    made = f"enginectl unit {name}{' --system' if system else ''}"
    save = f"{made} | sudo tee {place}/{file}" if system else f"mkdir -p {place} && {made} > {place}/{file}"
    note = [] if system else ["to run while you are logged out: loginctl enable-linger"]
    return [
        f"save it:  {save}",
        f"then:     {sudo}{manager} daemon-reload && {sudo}{manager} enable --now {file}",
        *note,
    ]
