"""Which engine a command means, and the connection to it: names in, entries and clients out.

Owns nothing; a connection belongs to the caller, who closes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control import EngineView
from enginectl.control_verbs import StatusArgs
from enginectl.errors import CtlError, NoSuchEngine, NotRunning, UsageError

if TYPE_CHECKING:
    from enginectl.client import Engine
    from enginectl.rundir import EngineEntry

DEFAULT_NAME = "default"
LOOK_TIMEOUT_S = 2.0
"""How long a look at one engine waits for its supervisor's answer."""


def one_name(positional: str | None, option: str | None) -> str | None:
    """NAME and -e are the same thing; both are allowed when they agree. Empty is a mistake: often an unset variable."""
    if positional == "" or option == "":
        raise UsageError("the engine's name is empty", cause="perhaps a variable that is not set")
    if positional and option and positional != option:
        import os

        if os.environ.get("ENGINECTL_ENGINE") == option:
            return positional
        raise UsageError(f"two engines named: {positional!r} and -e {option!r}")
    return positional or option


def find_entry(name: str | None, *, running: bool = True) -> EngineEntry:
    """The engine that is meant. Without a name: the only running one; else, unless `running`, the only known one.
    Raises NoSuchEngine, NotRunning, or UsageError when several could be meant."""
    from enginectl.rundir import EngineEntry, known_names, list_engines

    if name == "":
        raise UsageError("the engine's name is empty", cause="perhaps a variable that is not set")
    if name:
        try:
            return EngineEntry.find(name)
        except NoSuchEngine as error:
            raise with_suggestion(error, name, known_names()) from None
    entries = list_engines()
    alive = [entry for entry in entries if entry.liveness in ("running", "lost")]
    if len(alive) == 1:
        return alive[0]
    if len(alive) > 1:
        raise ambiguous([entry.name for entry in alive])
    if not running:
        chosen = entries if len(entries) == 1 else [entry for entry in entries if entry.name == DEFAULT_NAME]
        if chosen:
            return chosen[0]
    known = ", ".join(entry.name for entry in entries[:20])
    raise NotRunning(
        "no engine is running",
        cause=f"known: {known}" if known else "",
        try_=["enginectl start" if not known else f"enginectl start {entries[0].name}", "enginectl ps"],
    )


def ambiguous(names: list[str]) -> UsageError:
    return UsageError(f"several engines are running, name one: {', '.join(names)}")


def with_suggestion(error: CtlError, name: str, known: list[str]) -> CtlError:
    """The same error, with the engine that was probably meant."""
    from enginectl.verbs import nearest

    near = nearest(name, known)
    if near and near != name:
        error.message += f"; did you mean {near!r}?"
    return error


def connect(name: str | None) -> Engine:
    """A connection to the running engine that is meant."""
    from enginectl.client import Engine as Connected
    from enginectl.client import open_control

    return Connected(open_control(find_entry(name).name))


def look(entry: EngineEntry) -> EngineView:
    """What can be said of an engine now: its supervisor's word, else what the record says. Never waits long; an
    unreachable supervisor is part of the view, not an error."""
    if entry.liveness != "running":
        return entry.view()
    from enginectl.channel import ControlClient

    try:
        with ControlClient(
            entry.control_socket,
            name=entry.name,
            supervisor=entry.supervisor,
            connect_timeout_s=1.0,
            reply_timeout_s=LOOK_TIMEOUT_S,
        ) as client:
            return client.request("status", StatusArgs(), EngineView, timeout_s=LOOK_TIMEOUT_S)
    except CtlError:
        return type(entry).read(entry.name).view()
