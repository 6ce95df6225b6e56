"""Pause, resume, sleep and wake: a utility of the engine, then a look at what it did.

Used by the four handlers. Refuses what the engine's state does not allow before it is asked. A pause or sleep that its
caller did not wait for is taken back: the engine is left as it was. Of several at once the last to fail does that, and
nobody once one of them is done."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from enginectl.errors import CallFailed, CtlError, Deadline, WrongState
from enginectl.patience import TAKE_BACK_S
from enginectl.supervisor.late import late
from enginectl.supervisor.loop import Task
from enginectl.supervisor.view import engine_view
from enginectl.text import count

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session

MAX_TIMEOUT_S = 24 * 3600.0
UNDO = {"pause": "resume_scheduler", "sleep": "wake_up"}
UNDO_ORDER = ("", "resume_scheduler", "wake_up")
"""Each undoes what those before it undo."""
UNDO_LIMIT_S = 3600.0
"""It stands in the engine's queue behind what it undoes, also while the engine is stalled."""


async def gate(daemon: Daemon, session: Session, act: str, utility: str, *args: object, timeout_s: float) -> None:
    """Answers with the view after it. Raises WrongState, Deadline, EngineDied."""
    daemon.check_serving(act)
    name, end = daemon.settings.name, time.monotonic() + min(max(timeout_s, 0.0), MAX_TIMEOUT_S)
    if daemon.drain is not None:
        raise WrongState(f"{act}: engine {name!r} is draining", try_=[f"enginectl uncordon {name}"])
    attempt = Attempt(daemon, act)
    try:
        await attempt.look()
        await daemon.calls.get(utility, object, *args, timeout_s=max(0.0, end - time.monotonic()))
        attempt.is_done()
    except CallFailed as error:
        attempt.did_nothing()
        raise WrongState(f"{act}: {error.message}", cause=error.cause, try_=[f"enginectl status {name}"]) from None
    except Deadline:
        raise await _too_late(daemon, act, timeout_s, attempt) from None
    finally:
        attempt.leave("nobody waits for it any more")
    if daemon.health is not None:
        await daemon.health.ask()
    daemon.changed()
    session.reply(engine_view(daemon))


async def _too_late(daemon: Daemon, act: str, timeout_s: float, attempt: Attempt) -> Deadline:
    error = late(daemon, f"{act} was not done in {timeout_s:.1f} s")
    if daemon.stall.since is None and len(daemon.inflight):
        error.message = f"{act} was not done in {timeout_s:.1f} s: {count(len(daemon.inflight), 'request')} in flight"
        error.cause, error.try_ = "", [f"enginectl requests {daemon.settings.name}", f"enginectl {act} --timeout ..."]
    taking_back = attempt.leave(f"it was not done in {timeout_s:.1f} s")
    if taking_back is not None:
        is_back = await daemon.loop.first(taking_back, timeout_s=TAKE_BACK_S)
        words = f"the {act} {'was taken back' if is_back else 'is taken back as soon as the engine answers'}"
        error.cause = "; ".join(filter(None, (words, error.cause)))
    return error


class Attempt:
    """One pause, resume, sleep or wake, from its wish to its end; daemon.attempts has those that go on."""

    def __init__(self, daemon: Daemon, act: str) -> None:
        self._daemon = daemon
        self._act = act
        self._undo = ""
        """The utility that puts the engine back to where it was before."""
        self._owed = ""
        """The same for attempts that failed before this one, and left it to this one."""
        self._is_settled = False
        if act not in UNDO:
            self._settle_all()
        daemon.attempts.append(self)

    async def look(self) -> None:
        """Whether requests are scheduled now, as the engine itself says; one that does not answer has not changed, and
        one that is being put back will be open whatever it says now."""
        undos = list(self._daemon.undos)  # as they are before the answer; none begins while this attempt goes on
        health = self._daemon.health
        found = None if health is None else await health.ask() or health.engine
        is_open = bool(undos) or found is None or (found.paused is None and not found.sleeping)
        if is_open and not self._is_settled and self._act in UNDO:
            self._undo = max([UNDO[self._act], *undos], key=UNDO_ORDER.index)

    def is_done(self) -> None:
        """The engine is where somebody wanted it: no other attempt of this time may move it from there."""
        self._settle_all()

    def did_nothing(self) -> None:
        self._undo = ""

    def leave(self, why: str) -> Task[None] | None:
        """At its end, however it ends; again is nothing. None when there is nothing to take back, or not yet."""
        daemon = self._daemon
        if self not in daemon.attempts:
            return None
        daemon.attempts.remove(self)
        undo = max(self._undo, self._owed, key=UNDO_ORDER.index)
        others = [other for other in daemon.attempts if not other._is_settled and other._act in UNDO]
        if not undo or daemon.engine_exit.done:
            return None
        if others:
            others[-1]._owed = max(undo, others[-1]._owed, key=UNDO_ORDER.index)
            return None
        daemon.events.add(self._act, f"taken back: {why}")
        daemon.undos.append(undo)
        return daemon.loop.spawn(self._run(undo))

    def _settle_all(self) -> None:
        for attempt in self._daemon.attempts:
            attempt._undo, attempt._owed, attempt._is_settled = "", "", True

    async def _run(self, utility: str) -> None:
        daemon = self._daemon
        try:
            await daemon.calls.get(utility, object, timeout_s=UNDO_LIMIT_S)
        except CtlError as error:
            daemon.write_log(f"{utility}: {error.message}")
            return
        finally:
            daemon.undos.remove(utility)
        if daemon.health is not None:
            await daemon.health.ask()
        daemon.changed()
