"""The life of one engine as a table: (phase, event) -> phase. Every "may I?" is a column of it.

Owned by the main loop; other threads read `phase` only. A missing pair is a bug: IllegalTransition."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from engine.errors import EngineBug


class Event(Enum):
    """What can happen to an engine."""

    STARTED = "started"
    PAUSE_ASKED = "pause asked"
    RESUME_ASKED = "resume asked"
    DRAIN_ASKED = "drain asked"
    ABORT_ASKED = "abort asked"
    CANCEL_ASKED = "cancel asked"
    DEADLINE_REACHED = "deadline reached"
    WORK_DONE = "work done"
    DIED = "died"


class Phase(Enum):
    """Where an engine is in its life. `EngineShutdownState` of the field is draining, aborting, stopped."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"
    ABORTING = "aborting"
    STOPPED = "stopped"
    DEAD = "dead"

    @property
    def may_admit(self) -> bool:
        """New requests are taken; elsewhere they are answered with finish_reason ABORT."""
        return self in (Phase.RUNNING, Phase.PAUSED)

    @property
    def may_step(self) -> bool:
        """Work may run. In PAUSED the scheduler decides which (mode wait lets running requests finish)."""
        return self in (Phase.RUNNING, Phase.PAUSED, Phase.DRAINING)

    @property
    def may_sleep(self) -> bool:
        """Without work the loop may block on its input queue; a phase that is on its way out must look at itself."""
        return self in (Phase.RUNNING, Phase.PAUSED)

    @property
    def is_shutting_down(self) -> bool:
        return self in (Phase.DRAINING, Phase.ABORTING, Phase.STOPPED, Phase.DEAD)

    @property
    def is_final(self) -> bool:
        return self in (Phase.STOPPED, Phase.DEAD)


LIVE = frozenset({Phase.RUNNING, Phase.PAUSED})
LIVE_OR_DRAINING = LIVE | {Phase.DRAINING}
ANY = LIVE_OR_DRAINING | {Phase.ABORTING}

NEXT: dict[tuple[Phase, Event], Phase] = {
    (Phase.STARTING, Event.STARTED): Phase.RUNNING,
    (Phase.STARTING, Event.DRAIN_ASKED): Phase.STOPPED,
    (Phase.STARTING, Event.ABORT_ASKED): Phase.STOPPED,
    (Phase.RUNNING, Event.PAUSE_ASKED): Phase.PAUSED,
    (Phase.RUNNING, Event.RESUME_ASKED): Phase.RUNNING,
    (Phase.RUNNING, Event.CANCEL_ASKED): Phase.RUNNING,
    (Phase.RUNNING, Event.DRAIN_ASKED): Phase.DRAINING,
    (Phase.RUNNING, Event.ABORT_ASKED): Phase.ABORTING,
    (Phase.PAUSED, Event.PAUSE_ASKED): Phase.PAUSED,
    (Phase.PAUSED, Event.RESUME_ASKED): Phase.RUNNING,
    (Phase.PAUSED, Event.CANCEL_ASKED): Phase.PAUSED,
    (Phase.PAUSED, Event.DRAIN_ASKED): Phase.DRAINING,
    (Phase.PAUSED, Event.ABORT_ASKED): Phase.ABORTING,
    (Phase.DRAINING, Event.CANCEL_ASKED): Phase.RUNNING,
    (Phase.DRAINING, Event.DRAIN_ASKED): Phase.DRAINING,
    (Phase.DRAINING, Event.ABORT_ASKED): Phase.ABORTING,
    (Phase.DRAINING, Event.DEADLINE_REACHED): Phase.ABORTING,
    (Phase.DRAINING, Event.WORK_DONE): Phase.STOPPED,
    (Phase.ABORTING, Event.DRAIN_ASKED): Phase.ABORTING,
    (Phase.ABORTING, Event.ABORT_ASKED): Phase.ABORTING,
    (Phase.ABORTING, Event.WORK_DONE): Phase.STOPPED,
    (Phase.STOPPED, Event.DRAIN_ASKED): Phase.STOPPED,
    (Phase.STOPPED, Event.ABORT_ASKED): Phase.STOPPED,
    **{(phase, Event.DIED): Phase.DEAD for phase in Phase},
}


class IllegalTransition(EngineBug):
    def __init__(self, phase: Phase, event: Event) -> None:
        super().__init__(f"no transition from {phase.value} on {event.value}")
        self.phase, self.event = phase, event


class Lifecycle:
    """The current phase, and the deadline and origin of a shutdown that is under way."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.phase = Phase.STARTING
        self.clock = clock
        self.deadline: float | None = None
        """When a drain turns into an abort, on `clock`."""
        self.may_cancel = True
        """False once a signal asked for the shutdown: whoever sent it expects the process to end."""

    def advance(self, event: Event) -> Phase:
        """Moves along the table. Raises IllegalTransition."""
        following = NEXT.get((self.phase, event))
        if following is None:
            raise IllegalTransition(self.phase, event)
        self.phase = following
        if following is not Phase.DRAINING:
            self.deadline = None
        return following

    def ask_shutdown(self, timeout_s: float, *, may_cancel: bool) -> Phase:
        """Drain for at most timeout_s, or abort at once when it is 0. A later, shorter limit tightens a drain."""
        self.may_cancel = self.may_cancel and may_cancel
        if timeout_s <= 0:
            return self.advance(Event.ABORT_ASKED)
        deadline = self.clock() + timeout_s
        asked_before = self.deadline
        phase = self.advance(Event.DRAIN_ASKED)
        if phase is Phase.DRAINING:
            self.deadline = deadline if asked_before is None else min(deadline, asked_before)
        return phase

    @property
    def is_overdue(self) -> bool:
        return self.deadline is not None and self.clock() >= self.deadline

    @property
    def seconds_left(self) -> float | None:
        """Until the drain's deadline; None when there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - self.clock())
