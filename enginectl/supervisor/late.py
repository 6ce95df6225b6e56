"""Why an engine is late: what a caller hears whose deadline has passed, with the command that helps.

A daemon is read, words leave. Changes nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from enginectl.errors import Deadline
from enginectl.supervisor.view import state_of

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon

QUIET_S = 1.0
"""A loop that has not turned for so long is worth a word."""


def late(daemon: Daemon, what: str) -> Deadline:
    """`what`: the sentence without its reason, as in `ping did not answer in 3.0 s`."""
    name = daemon.settings.name
    state, reason = standing(daemon)
    tries = ("stacks", "dump", "restart") if state.startswith("stalled") else ("status",)
    return Deadline(
        f"{what}: engine {name!r} is {state}", cause=reason, try_=[f"enginectl {verb} {name}" for verb in tries]
    )


def standing(daemon: Daemon) -> tuple[str, str]:
    """(`stalled for 9 s`, why) of this moment."""
    now = time.monotonic()
    if daemon.engine_meter is not None:
        daemon.engine_meter.look(now)
    state, reason = state_of(daemon)
    if state != "stalled":
        return state, reason or _quiet(daemon, now)
    since = daemon.stall.since
    return state if since is None else f"{state} for {max(1.0, now - since):.0f} s", reason


def _quiet(daemon: Daemon, now: float) -> str:
    turned_at = daemon.book.turned_at
    age_s = 0.0 if turned_at is None else now - turned_at
    return f"its loop was last seen to turn {age_s:.0f} s ago" if age_s > QUIET_S else ""
