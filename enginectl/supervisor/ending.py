"""Stopping an engine: abort or drain by utility, then TERM, then KILL, each with its deadline, until nobody is left.

Works on a Daemon. The keeper sees the end itself; this escalates until it comes and says so when it does not."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from enginectl import text
from enginectl.control import ExitInfo
from enginectl.errors import CtlError, Deadline
from enginectl.supervisor.loop import Future
from enginectl.supervisor.stopping import Stop
from enginectl.supervisor.view import state_of

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon

KILL_S = 5.0
ASK_S = 2.0
EMPTY_LOOK_S = 0.2


def begin_stop(daemon: Daemon, grace_s: float, term_s: float, by: str, *, keeps_supervisor: bool = False) -> Stop:
    """Begins a stop, or joins the one that goes on; a join never lengthens it, and one without grace ends the drain."""
    stop = daemon.stopping
    if stop is not None and not stop.done.done:
        if stop.keeps_supervisor and not keeps_supervisor:
            stop.keeps_supervisor = False
            daemon.notifier.stopping(f"stopping, by {by}")
        if grace_s == 0.0:
            stop.hurry_to("abort")
        return stop
    before = daemon.drain.cut_off_before if daemon.drain is not None else daemon.inflight.cut_off
    stop = Stop(grace_s, term_s, by, keeps_supervisor=keeps_supervisor, cut_off_before=before)
    daemon.stopping = stop
    daemon.expected = by
    stop.listen(lambda stage: daemon.events.add("stop", f"{stage.stage} {stage.detail}".strip()))
    daemon.loop.spawn(run_stop(daemon, stop))
    daemon.stop_asked.set_result(None)
    if not keeps_supervisor:
        daemon.notifier.stopping(f"stopping, by {by}")
    daemon.changed()
    return stop


def cut_off(daemon: Daemon) -> int | None:
    """How many requests the stop or drain that goes on has cut off; None when none goes on. Those that their client or
    an operator gave up meanwhile, or that the engine ended with an error of their own, are not its doing."""
    ending = daemon.stopping or daemon.drain
    return None if ending is None else daemon.inflight.cut_off - ending.cut_off_before


def no_longer_expected(daemon: Daemon, by: str) -> None:
    """What `by` asked for will not come. Somebody else may have asked for the end meanwhile."""
    if daemon.expected == by:
        daemon.expected = ""


async def run_stop(daemon: Daemon, stop: Stop) -> None:
    """Each stage ends with the engine gone, its deadline, or somebody's hurry."""
    if daemon.is_without_engine:
        stop.tell("gone", "no engine was running")
        stop.done.set_result(None)
        return
    gone = daemon.gone
    if daemon.health is not None and not daemon.traffic.hold.is_holding:
        await _ask(daemon, stop, gone)
    if not gone.done and not stop.skips("terminate"):
        await _signal(daemon, stop, gone, signal.SIGTERM, stop.term_s)
    if not gone.done:
        await _signal(daemon, stop, gone, signal.SIGKILL, KILL_S)
    _conclude(daemon, stop, gone)


async def _ask(daemon: Daemon, stop: Stop, gone: Future[ExitInfo]) -> None:
    """By utility: the engine gives every request its last output. Not waited for when it is stalled."""
    if daemon.engine_meter is not None:
        daemon.engine_meter.look(time.monotonic())
    state, reason = state_of_engine(daemon)
    count = len(daemon.inflight)
    if state == "stalled":
        stop.tell("abort", f"not asked: {reason}")
        return
    drains = stop.grace_s > 0 and count > 0 and not stop.skips("drain")
    hurried = stop.next_stage()
    if drains:
        stop.tell("drain", f"{text.count(count, 'request')} may take up to {stop.grace_s:g} s")
        if daemon.kind.has_own_utilities:
            await _shutdown(daemon, stop.grace_s)
            await daemon.loop.first(gone, hurried, timeout_s=stop.grace_s + 1.0)
        else:
            await _until_empty(daemon, gone, hurried, stop.grace_s)
        if gone.done:
            if gone.result().requested and (cut := cut_off(daemon)):
                stop.tell("abort", f"{text.count(cut, 'request')} aborted at the end of the grace")
            return
        hurried = stop.next_stage()
    if not daemon.kind.has_own_utilities:
        return  # TERM makes it abort what runs
    stop.tell("abort", f"{text.count((cut_off(daemon) or 0) + daemon.inflight.at_stake, 'request')} aborted")
    await _shutdown(daemon, 0.0)
    await daemon.loop.first(gone, hurried, timeout_s=stop.term_s)


async def _until_empty(daemon: Daemon, gone: Future[ExitInfo], hurried: Future[None], grace_s: float) -> None:
    """An engine that knows no drain: nothing new is let in while it stops, so waiting is enough."""
    end = time.monotonic() + grace_s
    while len(daemon.inflight) and time.monotonic() < end and not (gone.done or hurried.done):
        await daemon.loop.first(gone, hurried, timeout_s=EMPTY_LOOK_S)


def state_of_engine(daemon: Daemon) -> tuple[str, str]:
    """The verdict below the word `stopping`."""
    if daemon.health is None:
        return state_of(daemon)
    verdict = daemon.health.verdict(is_cordoned=False)
    return verdict.state, verdict.reason


async def _shutdown(daemon: Daemon, timeout_s: float) -> None:
    try:
        await daemon.calls.get("shutdown", object, timeout_s, timeout_s=ASK_S)
    except CtlError as error:
        daemon.write_log(f"shutdown({timeout_s:g}): {error.message}")


async def _signal(
    daemon: Daemon, stop: Stop, gone: Future[ExitInfo], number: signal.Signals, patience_s: float
) -> None:
    child = daemon.child
    if child is None:
        return
    members = child.members()
    stage = "terminate" if number == signal.SIGTERM else "kill"
    stop.tell("terminate" if stage == "terminate" else "kill", f"{number.name} to {_pids(members)}")
    hurried = stop.next_stage()
    stop.has_signalled = True
    child.signal_group(number)
    if number == signal.SIGTERM:
        child.signal_group(signal.SIGCONT)  # a stopped process hears nothing else
    await daemon.loop.first(gone, hurried, timeout_s=patience_s)


def _conclude(daemon: Daemon, stop: Stop, gone: Future[ExitInfo]) -> None:
    alive = daemon.child.members() if daemon.child is not None else []
    if gone.done and not alive:
        stop.tell("gone", f"in {time.monotonic() - stop.began:.1f} s")
        stop.done.set_result(None)
        return
    daemon.reason = f"still alive after KILL: {_pids(alive)}"
    daemon.events.add("stop", daemon.reason)
    stop.done.set_error(
        Deadline(f"engine {daemon.settings.name!r} is still alive after KILL ({_pids(alive)})",
                 cause="a process in an uninterruptible wait ends when that wait does",
                 try_=[f"enginectl status {daemon.settings.name}"])
    )  # fmt: skip


def _pids(pids: list[int]) -> str:
    listed = ", ".join(map(str, pids[:8]))
    return f"pid {listed}" if len(pids) == 1 else f"pids {listed}" if pids else "nobody left"
