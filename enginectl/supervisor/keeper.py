"""The life of an engine under its supervisor: start, serve, end, and perhaps again.

One task. Every end is looked at: asked for or not, by whom, with what cause. When it is over for good the record holds
the post-mortem, everybody who waited has an answer, and the loop stops."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from engine.messages import EngineCoreReadyResponse
from engine.reports import EngineDescription
from enginectl.control import ExitInfo
from enginectl.errors import BadRuntimeDir, CtlError
from enginectl.record import LastStart, read_json, write_json
from enginectl.rundir import load_settings
from enginectl.supervisor.cause import first_cause
from enginectl.supervisor.child import Child, ExitStatus, StatusLine, bury
from enginectl.supervisor.dumping import seen_flight
from enginectl.supervisor.ending import cut_off
from enginectl.supervisor.evidence import Part, save_evidence
from enginectl.supervisor.flight import FlightRing
from enginectl.supervisor.health import Health, ProcessMeter
from enginectl.supervisor.logs import last_lines
from enginectl.supervisor.loop import Future
from enginectl.supervisor.phases import StartTracker
from enginectl.supervisor.policy import GiveUp, Restart, decide
from enginectl.supervisor.stats import StatsBook
from enginectl.supervisor.succession import bequeath, renounce, succeed
from enginectl.supervisor.view import request_views, stats_of
from enginectl.supervisor.vllm import core_pid

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon

LEFTOVER_TERM_S = 2.0
START_TERM_S = 2.0
LAST_ANSWERS_S = 2.0
ATTACH_S = 2.0
"""A start that fails at once can be asked about for so long."""
CLEAN_CODES = (0, 143)
CORE_S = 3.0
"""How long a launcher gets to end when its engine core has died, and again after TERM."""


async def keep(daemon: Daemon) -> None:
    """Until it is over for good; then stops the loop."""
    try:
        while True:
            began = time.monotonic()
            await run_once(daemon)
            if not await again(daemon, time.monotonic() - began):
                break
    except BaseException:
        daemon.phase, daemon.reason = "failed", "bug in the supervisor; see supervisor.log"
        raise
    finally:
        if daemon.child is not None and not daemon.gone.done:
            daemon.child.signal_group(signal.SIGKILL)
        daemon.loop.spawn(finish(daemon))


# ---------------------------------------------------------------- one run


async def run_once(daemon: Daemon) -> None:
    """From spawn to the end of the whole group."""
    _reset(daemon)
    child = daemon.child = Child(daemon.loop, lambda line: _on_status(daemon, line), daemon.on_engine_log)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
    daemon.engine_log.write(f"--- enginectl: instance {daemon.instance} {stamp}\n".encode())
    try:
        daemon.relay.prepare(tcp=daemon.kind.handshake_over_tcp)
        child.spawn(daemon.settings, daemon.relay.handshake_address)
    except OSError as error:
        daemon.tracker.error = f"cannot run {daemon.settings.python}: {error.strerror or error}"
        child.exited.set_result(ExitStatus(127, None))
    else:
        daemon.engine_meter = ProcessMeter(child.pid)
        daemon.events.add("spawn", f"engine pid {child.pid}")
        if not daemon.kind.tells_phases:
            daemon.tracker.on_line(StatusLine(phase="handshake", event="begin"))
        if daemon.api is not None:
            daemon.api.start()
        if daemon.bridge is not None:
            daemon.bridge.open()
    daemon.write_record()
    daemon.changed()
    ready = daemon.became_ready
    if not await daemon.loop.first(ready, child.exited, timeout_s=daemon.settings.start_timeout_s):
        await _start_overdue(daemon, child)
    was_ready = ready.done and not child.exited.done
    if was_ready:
        _on_ready(daemon, ready.result())
    status = await child.exited
    await _on_exit(daemon, child, status, was_ready)


def _reset(daemon: Daemon) -> None:
    daemon.phase, daemon.reason, daemon.next_restart_at = "starting", "", None
    daemon.expected = daemon.stopping.by if daemon.stopping and not daemon.stopping.done.done else ""
    daemon.has_signalled = daemon.heard_dead = False
    daemon.ready = daemon.health = daemon.description = None
    daemon.book, daemon.flight = StatsBook(), FlightRing()
    daemon.tracker = StartTracker(read_json(daemon.paths.last_start, LastStart))
    daemon.became_ready, daemon.gone, daemon.engine_exit = Future(), Future(), Future()


def _on_status(daemon: Daemon, line: StatusLine) -> None:
    daemon.tracker.on_line(line)
    daemon.changed()


async def _start_overdue(daemon: Daemon, child: Child) -> None:
    limit_s = daemon.settings.start_timeout_s
    daemon.tracker.error = f"not ready within {limit_s:g} s (start timeout), in phase '{daemon.tracker.current}'"
    for number, patience_s in ((signal.SIGTERM, START_TERM_S), (signal.SIGKILL, 5.0)):
        child.signal_group(number)
        if await daemon.loop.first(child.exited, timeout_s=patience_s):
            return


def _on_ready(daemon: Daemon, response: EngineCoreReadyResponse) -> None:
    daemon.phase, daemon.ready, daemon.was_ever_ready = "serving", response, True
    took_s = daemon.tracker.finish()
    daemon.last_ready_after_s = daemon.last_start_s
    daemon.last_start_s = took_s
    daemon.book = StatsBook(response)
    daemon.book.on_turn(time.monotonic())
    if daemon.engine_meter is not None and daemon.child is not None:
        if daemon.kind.is_guarded:
            core = core_pid(daemon.child.members())
            daemon.engine_meter = ProcessMeter(core, daemon.child.members)
            daemon.loop.spawn(_watch_core(daemon, daemon.child, core))
        daemon.health = Health(
            daemon.loop, daemon.calls, daemon.book, daemon.inflight, daemon.engine_meter, daemon.settings.max_step_s,
            daemon.changed, daemon.kind,
        )  # fmt: skip
        daemon.health.ask_soon()
    daemon.events.add("ready", f"after {took_s:.1f} s")
    daemon.notifier.ready(f"ready after {took_s:.1f} s")
    try:
        write_json(daemon.paths.last_start, daemon.tracker.as_last_start())
    except BadRuntimeDir as error:
        daemon.write_log(f"last_start.json not written: {error.cause}")
    succeed(daemon)
    if daemon.kind.has_own_utilities:
        daemon.loop.spawn(_describe(daemon))
    daemon.write_record()
    daemon.changed()


async def _watch_core(daemon: Daemon, child: Child, core: int) -> None:
    """A launcher may outlive the process that computes, and then end as if nothing had happened."""
    await child.other_exit(core)
    if child.exited.done or daemon.stopping is not None:
        return
    daemon.tracker.error = daemon.tracker.error or f"its engine core (pid {core}) died"
    if not await daemon.loop.first(child.exited, timeout_s=CORE_S):
        child.signal_group(signal.SIGTERM)
        if not await daemon.loop.first(child.exited, timeout_s=CORE_S):
            child.signal_group(signal.SIGKILL)


async def _describe(daemon: Daemon) -> None:
    try:
        daemon.description = await daemon.calls.get("describe", EngineDescription, timeout_s=10.0)
    except CtlError as error:
        daemon.write_log(f"describe: {error.message}")


# ---------------------------------------------------------------- the end of a run


async def _on_exit(daemon: Daemon, child: Child, status: ExitStatus, was_ready: bool) -> None:
    """Tells everybody at once, saves the evidence, then waits until the whole group is gone."""
    daemon.relay.engine_gone()
    requested = _was_asked_for(daemon, status)
    lines = last_lines(daemon.paths.engine_log, 100)
    cause = "" if requested else first_cause(daemon.tracker.error, lines, str(status))
    info = daemon.last_exit = ExitInfo(
        code=status.code, signal=status.signal, cause=cause, phase="" if was_ready else daemon.tracker.current,
        at=time.time(), requested=requested, up_s=daemon.tracker.elapsed_s,
    )  # fmt: skip
    if daemon.health is not None:
        info.step = daemon.book.last.step_counter
        info.running, info.waiting = daemon.health.counts()
    if requested and (cut := cut_off(daemon)) is not None:
        info.aborted = cut + (0 if daemon.traffic.hold.is_holding else daemon.inflight.at_stake)
    if not requested:
        info.evidence = save_evidence_of(daemon, "died")
    if daemon.health is not None:
        daemon.health.close()
    daemon.health, daemon.engine_meter = None, None
    daemon.phase, daemon.reason = ("exited", str(status)) if requested else ("failed", f"{status}: {cause}")
    daemon.events.add("exit", f"{status}{', asked for by ' + daemon.expected if requested else ': ' + cause}")
    daemon.calls.fail_all(daemon.died())
    bequeath(daemon)
    daemon.engine_exit.set_result(info)
    daemon.changed()
    await _bury(daemon, child)
    child.close()
    daemon.gone.set_result(info)


async def _bury(daemon: Daemon, child: Child) -> None:
    """Nothing goes on while somebody of the engine's group lives: it may hold the memory."""
    left = child.members()
    if left:
        daemon.events.add("leftover", f"{len(left)} processes outlived the engine: {left[:8]}")
    alive = await bury(daemon.loop, child, LEFTOVER_TERM_S)
    if alive:
        daemon.reason = f"still alive after KILL: pids {alive[:8]}"
        daemon.events.add("leftover", daemon.reason)
    while child.members():
        await daemon.loop.sleep(0.5)


def _was_asked_for(daemon: Daemon, status: ExitStatus) -> bool:
    """An end that somebody asked for, in the way it was asked for. Exit 0 that nobody wanted is a failure."""
    if not daemon.expected:
        return False
    has_signalled = daemon.has_signalled or (daemon.stopping is not None and daemon.stopping.has_signalled)
    return status.code in CLEAN_CODES or has_signalled


def save_evidence_of(daemon: Daemon, kind: str, stacks: str = "") -> str:
    parts: dict[str, Part] = {
        "requests": list(request_views(daemon)),
        "events": list(daemon.events.last(100)),
        "flight": seen_flight(daemon),
    }
    if (stats := stats_of(daemon)) is not None:
        parts["stats"] = stats
    if stacks:
        parts["stacks"] = stacks
    where = save_evidence(daemon.paths.evidence, kind, daemon.paths.engine_log, parts)
    if where:
        daemon.events.add("evidence", where)
    return where


# ---------------------------------------------------------------- and then


async def again(daemon: Daemon, lived_s: float) -> bool:
    """Whether another run begins, after waiting for its time."""
    stop = daemon.stopping
    if stop is not None:
        await daemon.loop.first(stop.done, timeout_s=10.0)
        daemon.stopping = None
        daemon.stop_asked = Future()
        if not stop.keeps_supervisor:
            daemon.phase = "exited"
            return False
        return _reload(daemon, is_asked_for=True)
    daemon.is_cordoned = False
    if daemon.expected and daemon.settings.restart != "always":  # also when it died while it was drained
        return False
    if not daemon.was_ever_ready:
        return False
    choice = decide(daemon.settings.restart, daemon.restart_times, time.monotonic(), lived_s)
    if isinstance(choice, GiveUp):
        if choice.reason:
            daemon.reason = f"{choice.reason}; last: {daemon.reason}"
            daemon.events.add("gave-up", choice.reason)
        return False
    return await _back_off(daemon, choice)


async def _back_off(daemon: Daemon, choice: Restart) -> bool:
    daemon.phase = "backoff"
    daemon.next_restart_at = time.monotonic() + choice.delay_s
    daemon.reason = f"restart {daemon.restarts + 1} in {choice.delay_s:g} s; last: {daemon.reason}"
    daemon.events.add("backoff", daemon.reason)
    daemon.changed()
    await daemon.loop.first(daemon.stop_asked, timeout_s=choice.delay_s)
    daemon.next_restart_at = None
    stop = daemon.stopping
    if stop is not None:
        await daemon.loop.first(stop.done, timeout_s=5.0)
        daemon.stopping, daemon.stop_asked = None, Future()
        if not stop.keeps_supervisor:
            daemon.phase, daemon.reason = "exited", f"stopped by {stop.by}"
            return False
    daemon.restart_times.append(time.monotonic())
    return _reload(daemon, is_asked_for=stop is not None)


def _reload(daemon: Daemon, *, is_asked_for: bool) -> bool:
    """The next run uses what settings.json says now, if it can be read."""
    daemon.restarts += 1
    daemon.is_restarting = is_asked_for
    daemon.is_cordoned = False
    daemon.settings = load_settings(daemon.settings.name) or daemon.settings
    return True


async def finish(daemon: Daemon) -> None:
    """The post-mortem is written, everybody hears the end, the loop stops."""
    try:
        daemon.possessions.look()  # the post-mortem wants a directory, and the last look was up to a second ago
        renounce(daemon)
        if daemon.api is not None:
            await daemon.api.end()
        daemon.over.set_result(None)
        daemon.changed()
        daemon.write_record(ended=True)
        daemon.events.add("end", f"{daemon.phase} {daemon.reason}".strip())
        end = time.monotonic() + LAST_ANSWERS_S
        while daemon.server.sessions and time.monotonic() < end:
            await daemon.loop.sleep(0.02)
        if daemon.phase == "failed" and not daemon.was_ever_ready:  # whoever launched us is about to ask
            await daemon.loop.sleep(max(0.0, daemon.began + ATTACH_S - time.monotonic()))
        daemon.publish(time.monotonic())
    finally:
        daemon.loop.stop()
