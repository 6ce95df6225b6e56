"""What a supervisor answers: one module per verb, registered in a literal table.

A handler is a coroutine over (daemon, session, args) that ends its session. What it raises becomes the caller's error;
a caller that vanished cancels it at its current wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from enginectl import __version__
from enginectl.control import CONTROL_VERSION
from enginectl.control_explain import ExplainArgs
from enginectl.control_verbs import (
    AbortArgs,
    CallArgs,
    CordonArgs,
    DrainArgs,
    DumpArgs,
    EventsArgs,
    GenerateArgs,
    KillArgs,
    MetricsArgs,
    PauseArgs,
    RequestsArgs,
    RestartArgs,
    ResumeArgs,
    SleepArgs,
    StacksArgs,
    StatusArgs,
    StopArgs,
    UtilitiesArgs,
    WakeArgs,
    WatchArgs,
)
from enginectl.errors import Bug, Conflict, CtlError, Deadline, UnknownVerb, UsageError
from enginectl.supervisor.handlers import (
    abort,
    call,
    cordon,
    drain,
    dump,
    events,
    explain,
    generate,
    kill,
    metrics,
    pause,
    requests,
    restart,
    resume,
    sleep,
    stacks,
    status,
    stop,
    uncordon,
    utilities,
    wake,
    watch,
)
from enginectl.supervisor.loop import Cancelled, DeadlinePassed
from enginectl.supervisor.verb_events import tell_asked, tell_done

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


@dataclass(frozen=True, slots=True)
class Verb:
    handle: Callable[[Daemon, Session, Any], Awaitable[None]]
    args: type[Struct]
    any_version: bool = False
    """Also answered for a caller that speaks another version of the control protocol."""


HANDLERS: dict[str, Verb] = {
    "status": Verb(status.handle, StatusArgs, any_version=True),
    "watch": Verb(watch.handle, WatchArgs),
    "requests": Verb(requests.handle, RequestsArgs),
    "events": Verb(events.handle, EventsArgs),
    "utilities": Verb(utilities.handle, UtilitiesArgs),
    "call": Verb(call.handle, CallArgs),
    "abort": Verb(abort.handle, AbortArgs),
    "generate": Verb(generate.handle, GenerateArgs),
    "stop": Verb(stop.handle, StopArgs, any_version=True),
    "drain": Verb(drain.handle, DrainArgs, any_version=True),
    "cordon": Verb(cordon.handle, CordonArgs),
    "uncordon": Verb(uncordon.handle, CordonArgs),
    "restart": Verb(restart.handle, RestartArgs),
    "kill": Verb(kill.handle, KillArgs),
    "stacks": Verb(stacks.handle, StacksArgs),
    "explain": Verb(explain.handle, ExplainArgs),
    "pause": Verb(pause.handle, PauseArgs),
    "resume": Verb(resume.handle, ResumeArgs),
    "sleep": Verb(sleep.handle, SleepArgs),
    "wake": Verb(wake.handle, WakeArgs),
    "dump": Verb(dump.handle, DumpArgs),
    "metrics": Verb(metrics.handle, MetricsArgs),
}


def dispatch(daemon: Daemon, session: Session) -> None:
    """Begins the task that answers one request."""
    session.task = daemon.loop.spawn(_answer(daemon, session))


async def _answer(daemon: Daemon, session: Session) -> None:
    try:
        verb, args = _admit(session, daemon.settings.name)
        tell_asked(daemon.events, session)
        await verb.handle(daemon, session, args)
        tell_done(daemon.events, session)
    except CtlError as error:
        _fail(daemon, session, error)
    except DeadlinePassed as error:
        _fail(daemon, session, Deadline(f"{session.request.verb}: {error}"))
    except Cancelled:
        raise
    except Exception as error:
        session.error(
            Bug(f"{session.request.verb}: {type(error).__name__}: {error}", see=[str(daemon.paths.supervisor_log)])
        )
        raise


def _fail(daemon: Daemon, session: Session, error: CtlError) -> None:
    tell_done(daemon.events, session, error)
    session.error(error)


def _renewal(name: str) -> list[str]:
    """How a supervisor is replaced by one of the version that is installed now."""
    return [f"enginectl drain {name} && enginectl start {name}"]


def _admit(session: Session, name: str) -> tuple[Verb, Struct]:
    """The verb and its arguments. Raises UnknownVerb, Conflict or UsageError."""
    request = session.request
    verb = HANDLERS.get(request.verb)
    if verb is None:
        known = ", ".join(sorted(HANDLERS))
        raise UnknownVerb(
            f"verb {request.verb[:80]!r} is not known to this supervisor (version {__version__})",
            cause=f"known: {known}",
            try_=_renewal(name),
        )
    if request.v != CONTROL_VERSION and not verb.any_version:
        raise Conflict(
            f"control protocol {request.v} is not spoken here (supervisor: {CONTROL_VERSION}, version {__version__})",
            cause="status, drain and stop still work",
            try_=_renewal(name),
        )
    try:
        args = msgspec.msgpack.decode(request.args, type=verb.args) if bytes(request.args) != b"\xc0" else verb.args()
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"arguments of {request.verb!r} cannot be read", cause=str(error)[:500]) from None
    return verb, args
