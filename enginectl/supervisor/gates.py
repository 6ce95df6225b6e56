"""Pause, resume, sleep and wake: a utility of the engine, then a look at what it did.

Used by the four handlers. Refuses what the engine's state does not allow before it is asked. A pause or sleep that its
caller did not wait for is taken back: the engine is left as it was."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from enginectl.errors import CallFailed, CtlError, Deadline, WrongState
from enginectl.patience import TAKE_BACK_S
from enginectl.supervisor.late import late
from enginectl.supervisor.loop import Cancelled, Task
from enginectl.supervisor.view import engine_view
from enginectl.text import count

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session

MAX_TIMEOUT_S = 24 * 3600.0
UNDO = {"pause": "resume_scheduler", "sleep": "wake_up"}
UNDO_LIMIT_S = 3600.0
"""It stands in the engine's queue behind what it undoes, also while the engine is stalled."""


async def gate(daemon: Daemon, session: Session, act: str, utility: str, *args: object, timeout_s: float) -> None:
    """Answers with the view after it. Raises WrongState, Deadline, EngineDied."""
    daemon.check_serving(act)
    name, end = daemon.settings.name, time.monotonic() + min(max(timeout_s, 0.0), MAX_TIMEOUT_S)
    if daemon.drain is not None:
        raise WrongState(f"{act}: engine {name!r} is draining", try_=[f"enginectl uncordon {name}"])
    undo = _Undo(daemon, act, was_open=await _is_open(daemon))
    try:
        await daemon.calls.get(utility, object, *args, timeout_s=max(0.0, end - time.monotonic()))
    except CallFailed as error:
        raise WrongState(f"{act}: {error.message}", cause=error.cause, try_=[f"enginectl status {name}"]) from None
    except Deadline:
        raise await _too_late(daemon, act, timeout_s, undo) from None
    except Cancelled:
        undo.begin("nobody waits for it any more")
        raise
    if daemon.health is not None:
        await daemon.health.ask()
    daemon.changed()
    session.reply(engine_view(daemon))


async def _is_open(daemon: Daemon) -> bool:
    """Whether requests are scheduled now, as the engine itself says; an engine that does not answer has not changed."""
    found = None if daemon.health is None else await daemon.health.ask() or daemon.health.engine
    return found is None or (found.paused is None and not found.sleeping)


async def _too_late(daemon: Daemon, act: str, timeout_s: float, undo: _Undo) -> Deadline:
    error = late(daemon, f"{act} was not done in {timeout_s:.1f} s")
    if daemon.stall.since is None and len(daemon.inflight):
        error.message = f"{act} was not done in {timeout_s:.1f} s: {count(len(daemon.inflight), 'request')} in flight"
        error.cause, error.try_ = "", [f"enginectl requests {daemon.settings.name}", f"enginectl {act} --timeout ..."]
    taking_back = undo.begin(f"it was not done in {timeout_s:.1f} s")
    if taking_back is not None:
        is_back = await daemon.loop.first(taking_back, timeout_s=TAKE_BACK_S)
        words = f"the {act} {'was taken back' if is_back else 'is taken back as soon as the engine answers'}"
        error.cause = "; ".join(filter(None, (words, error.cause)))
    return error


class _Undo:
    """What puts an engine back to where it was before one pause or sleep. Somebody else's later one is left alone."""

    def __init__(self, daemon: Daemon, act: str, *, was_open: bool) -> None:
        self._daemon = daemon
        self._act = act
        self._was_open = was_open
        daemon.gate_turn += 1
        self._turn = daemon.gate_turn

    def begin(self, why: str) -> Task[None] | None:
        """None when there is nothing to take back."""
        daemon = self._daemon
        if self._act not in UNDO or not self._was_open or daemon.gate_turn != self._turn or daemon.engine_exit.done:
            return None
        daemon.events.add(self._act, f"taken back: {why}")
        return daemon.loop.spawn(self._run(UNDO[self._act]))

    async def _run(self, utility: str) -> None:
        daemon = self._daemon
        try:
            await daemon.calls.get(utility, object, timeout_s=UNDO_LIMIT_S)
        except CtlError as error:
            daemon.write_log(f"{utility}: {error.message}")
            return
        if daemon.health is not None:
            await daemon.health.ask()
        daemon.changed()
