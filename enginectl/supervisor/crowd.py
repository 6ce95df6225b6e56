"""Many callers at once: how many generations this process has room for, and one event for those that were lost.

The daemon makes it, the handler of `generate` asks it. Owns the process's limit of open files, which it raises."""

from __future__ import annotations

import contextlib
import resource
import time

from enginectl.errors import WrongState
from enginectl.supervisor.events import EventLog
from enginectl.supervisor.loop import Loop
from enginectl.supervisor.verb_events import shortened
from enginectl.text import count

MAX_FILES = 65_536
"""More than that and programs that walk through all possible files become slow; the engine inherits it."""
RAISE_LIMIT = f"raise the hard limit first: LimitNOFILE={MAX_FILES} in its unit, or as root: ulimit -Hn {MAX_FILES}"
"""The soft limit is at the hard one already, see raise_file_limit."""
OWN_FILES = 128
"""Sockets, logs, pipes, the engine's connections, and those who look."""
FILES_EACH = 2
"""A caller may hold a connection for its questions beside that of its generation."""
TELL_S, TELL_EVERY_S = 1.0, 10.0
"""Losses are gathered for a moment; a client that leaves early as a habit must not push out every other event."""


def raise_file_limit() -> int:
    """Up to what this user may have; how many files there may be now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return MAX_FILES if soft == resource.RLIM_INFINITY else soft


class Crowd:
    """Main thread only."""

    def __init__(self, loop: Loop, events: EventLog, name: str) -> None:
        self.files = raise_file_limit()
        self.most = max(1, (self.files - OWN_FILES) // FILES_EACH)
        self._loop = loop
        self._events = events
        self._name = name
        self._lost: list[str] = []
        self._told_at = float("-inf")

    def check_room(self, callers: int) -> None:
        """`callers`: generations that are read over the control socket now. Raises WrongState."""
        if callers >= self.most:
            raise WrongState(
                f"engine {self._name!r} has {callers:,} callers already, as many as its supervisor can serve",
                cause=f"its limit of open files is {self.files:,} (ulimit -n)",
                try_=[RAISE_LIMIT] if self.files < MAX_FILES else [],
            )

    def on_lost(self, request_id: str) -> None:
        """Its caller is gone before its end."""
        self._lost.append(request_id)
        if len(self._lost) == 1:
            self._loop.after(max(TELL_S, self._told_at + TELL_EVERY_S - time.monotonic()), self._tell)

    def _tell(self) -> None:
        lost, self._lost = self._lost, []
        self._told_at = time.monotonic()
        is_one = len(lost) == 1
        text = f"{count(len(lost), 'request')} aborted, {'its caller is' if is_one else 'their callers are'} gone"
        self._events.add("caller", f"{text}: {shortened(lost)}", requests=len(lost))
