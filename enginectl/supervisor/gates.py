"""Pause, resume, sleep and wake: a utility of the engine, then a look at what it did.

Used by the four handlers. Refuses what the engine's state does not allow before it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.errors import CallFailed, WrongState
from enginectl.supervisor.view import engine_view

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session

MAX_TIMEOUT_S = 24 * 3600.0


async def gate(daemon: Daemon, session: Session, act: str, utility: str, *args: object, timeout_s: float) -> None:
    """Answers with the view after it. Raises WrongState, Deadline, EngineDied."""
    daemon.check_serving(act)
    name = daemon.settings.name
    if daemon.drain is not None:
        raise WrongState(f"{act}: engine {name!r} is draining", try_=[f"enginectl uncordon {name}"])
    try:
        await daemon.calls.get(utility, object, *args, timeout_s=min(max(timeout_s, 0.0), MAX_TIMEOUT_S))
    except CallFailed as error:
        raise WrongState(f"{act}: {error.message}", cause=error.cause, try_=[f"enginectl status {name}"]) from None
    if daemon.health is not None:
        await daemon.health.ask()
    daemon.changed()
    session.reply(engine_view(daemon))
