"""A stall begins, and its evidence is saved before anything else is done; it ends, and that is told too."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from enginectl.control import State
from enginectl.errors import CtlError
from enginectl.supervisor.stacks import collect_stacks

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon

STACKS_S = 1.0


class StallWatch:
    """look() once a second with the state and its reason. Main thread only."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.since: float | None = None
        """Monotonic, s, when it was first seen to be stalled; None while it is not."""

    def look(self, found: tuple[State, str]) -> None:
        state, reason = found
        is_stalled, was_stalled = state == "stalled", self.since is not None
        if is_stalled and not was_stalled:
            self.since = time.monotonic()
            self._daemon.events.add("stalled", reason)
            self._daemon.loop.spawn(self._save())
        elif was_stalled and not is_stalled:
            self.since = None
            self._daemon.events.add("recovered", f"{state} again")

    async def _save(self) -> None:
        from enginectl.supervisor.keeper import save_evidence_of

        try:
            stacks = await collect_stacks(self._daemon, STACKS_S)
        except CtlError as error:
            stacks = str(error)
        save_evidence_of(self._daemon, "stalled", stacks=stacks)
