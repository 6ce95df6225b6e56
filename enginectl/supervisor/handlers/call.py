"""`call`: one utility of the engine, with its own deadline."""

from __future__ import annotations

import difflib
import time
from typing import TYPE_CHECKING

from enginectl.control_verbs import CallArgs, CallResult
from enginectl.errors import CallFailed, Deadline, NoSuchUtility
from enginectl.supervisor.ending import no_longer_expected
from enginectl.supervisor.late import late
from enginectl.text import one_line

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


MAX_TIMEOUT_S = 24 * 3600.0
SHUTDOWN = "call shutdown"
STILL_QUEUED = "the engine has the call and may still carry it out"


async def handle(daemon: Daemon, session: Session, args: CallArgs) -> None:
    session.subject = one_line(args.utility, 80)
    daemon.check_serving(f"call {args.utility[:80]}")
    _check_name(daemon, args.utility)
    began = time.monotonic()
    if args.utility == "shutdown" and not daemon.expected:
        daemon.expected = SHUTDOWN
    try:
        value = await daemon.calls.raw(args.utility, args.args, min(max(args.timeout_s, 0.0), MAX_TIMEOUT_S))
    except CallFailed:
        no_longer_expected(daemon, SHUTDOWN)
        raise
    except Deadline as error:
        told = late(daemon, error.message)
        if not _is_read_only(daemon, args.utility):
            told.cause = "; ".join(filter(None, (told.cause, STILL_QUEUED)))
        raise told from None
    if daemon.health is not None:
        if not _is_read_only(daemon, args.utility):
            await daemon.health.ask()
        daemon.changed()
    took_ms = (time.monotonic() - began) * 1000
    session.outcome = f"answered in {took_ms:.0f} ms"
    session.reply(CallResult(value=value, took_ms=took_ms, step=daemon.book.last.step_counter))


def _check_name(daemon: Daemon, name: str) -> None:
    """Against the table that the engine described; an engine that described none answers for itself."""
    if daemon.description is None:
        return
    known = [row.name for row in daemon.description.utilities]
    if name in known:
        return
    near = difflib.get_close_matches(name[:80], known, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"{len(known)} are callable"
    raise NoSuchUtility(f"no utility is called {name[:80]!r}", cause=hint, try_=["enginectl call --list"])


def _is_read_only(daemon: Daemon, name: str) -> bool:
    rows = daemon.description.utilities if daemon.description else []
    return any(row.name == name and row.effect == "reads" for row in rows)
