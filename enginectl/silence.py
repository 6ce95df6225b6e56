"""Of a supervisor that is there and does not answer: why, and what to run. Reads /proc; says, changes nothing."""

from __future__ import annotations

from enginectl.errors import Unreachable
from enginectl.identity import ProcessId, is_alive, is_stopped


def why_silent(supervisor: ProcessId | None) -> str:
    if supervisor is None:
        return "its supervisor holds the lock and does not answer"
    if is_stopped(supervisor):
        return f"its supervisor (pid {supervisor.pid}) is stopped (state T); kill -CONT lets it go on"
    return f"its supervisor (pid {supervisor.pid}) is alive and does not answer"


def unreachable(name: str, supervisor: ProcessId | None, cause: str) -> Unreachable:
    """The one verdict of every verb, with the one verb that needs no answer."""
    if supervisor is not None and not is_alive(supervisor):
        return Unreachable(f"supervisor of engine {name!r} is gone", cause=cause, try_=[f"enginectl status {name}"])
    known = f"{why_silent(supervisor)}; {cause}" if supervisor is not None else cause
    tries = [f"enginectl kill {name}", f"enginectl status {name}"]
    return Unreachable(f"supervisor of engine {name!r} is unreachable", cause=known, try_=tries)
