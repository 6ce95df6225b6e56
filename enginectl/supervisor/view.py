"""EngineView and Record out of a daemon's state. Reads everything, changes nothing."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from enginectl import __version__
from enginectl.control import EngineView, RequestView, State
from enginectl.control_stats import Stats
from enginectl.identity import identify
from enginectl.record import Record
from enginectl.text import count

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon


def state_of(daemon: Daemon) -> tuple[State, str]:
    """The one word for what an engine is doing, and why."""
    held = held_text(daemon)
    if daemon.phase in ("failed", "exited", "backoff"):
        return daemon.phase, held + daemon.reason
    if daemon.stopping is not None:
        return "stopping", held + daemon.stopping.detail
    if daemon.health is None:
        return "starting", f"{held}phase '{daemon.tracker.current}' for {phase_age_s(daemon):.0f} s"
    verdict = daemon.health.verdict(is_cordoned=daemon.is_cordoned)
    if verdict.state == "stalled":
        return verdict.state, verdict.reason
    if daemon.drain is not None:
        return "draining", f"{count(len(daemon.inflight), 'request')} left"
    return verdict.state, verdict.reason or daemon.notice


def held_text(daemon: Daemon) -> str:
    """`holding 8, 6s; ` while clients wait for the next engine."""
    held_s = daemon.traffic.hold.held_s
    return "" if held_s is None else f"holding {len(daemon.traffic.ledger.items)}, {held_s:.0f}s; "


def phase_age_s(daemon: Daemon) -> float:
    began = next((phase.began_s for phase in daemon.tracker.phases if phase.took_s is None), 0.0)
    return daemon.tracker.elapsed_s - began


def stats_of(daemon: Daemon, *, with_steps: bool = True) -> Stats | None:
    """None before the engine is ready."""
    if daemon.health is None:
        return None
    running, waiting = daemon.health.counts()
    stats = daemon.book.snapshot(time.monotonic(), running, waiting, with_steps=with_steps)
    engine = daemon.health.engine
    if engine is not None:
        stats.rejected_messages = max(stats.rejected_messages, engine.rejected_messages)
        stats.dropped_outputs = max(stats.dropped_outputs, engine.dropped_outputs)
        stats.loop_counter = max(stats.loop_counter or 0, engine.loop_counter)
        stats.step_counter = max(stats.step_counter, engine.step_counter)
        if not running + waiting and engine.num_gpu_blocks:  # idle: the engine's own count is the truth
            stats.kv_used_blocks = engine.num_gpu_blocks - engine.free_blocks
            stats.kv_used_ratio = stats.kv_used_blocks / engine.num_gpu_blocks
    stats.rejected_messages += daemon.unreadable + daemon.server.rejected
    return stats


def engine_view(daemon: Daemon) -> EngineView:
    state, reason = state_of(daemon)
    settings, backoff_at = daemon.settings, daemon.next_restart_at
    drain = daemon.drain.progress if daemon.drain else None
    version = f" {daemon.description.version}" if daemon.description else ""
    return EngineView(
        name=settings.name, state=state, reason=reason, instance=daemon.instance, model=settings.model,
        engine=settings.engine + version, supervisor=daemon.meter.info(),
        process=daemon.engine_meter.info() if daemon.engine_meter else None,
        gpus=daemon.gpus.seen if daemon.child else [], started_at=daemon.tracker.began_at,
        uptime_s=0.0 if daemon.is_without_engine else daemon.tracker.elapsed_s,
        ready_after_s=daemon.tracker.ready_after_s,
        last_ready_after_s=daemon.last_ready_after_s, phases=daemon.tracker.phases, ready=daemon.ready,
        frontend=daemon.bridge.text() if daemon.bridge else "", http=daemon.http,
        held=len(daemon.traffic.ledger.items) if daemon.traffic.hold.is_holding else 0,
        held_s=daemon.traffic.hold.held_s,
        asked=settings.config, cordoned=daemon.is_cordoned, drain=drain, stats=stats_of(daemon),
        restarts=daemon.restarts, restart_policy=settings.restart,
        next_restart_in_s=None if backoff_at is None else max(0.0, backoff_at - time.monotonic()),
        returns=daemon.stopping is not None and daemon.stopping.keeps_supervisor,
        last_exit=daemon.last_exit, metrics=daemon.exporter.url if daemon.exporter else "",
        log=str(daemon.paths.engine_log), supervisor_version=__version__,
        observed_at=time.time(),
    )  # fmt: skip


def record_of(daemon: Daemon, *, ended: bool) -> Record:
    state, reason = state_of(daemon)
    settings = daemon.settings
    return Record(
        name=settings.name, instance=daemon.instance, uid=os.geteuid(), runtime_dir=str(daemon.base),
        supervisor=identify(os.getpid()), engine=daemon.child.id if daemon.child and not ended else None, state=state,
        ended=ended, reason=reason, model=settings.model, engine_kind=settings.engine,
        engine_version=daemon.description.version if daemon.description else "", supervisor_version=__version__,
        started_at=daemon.tracker.began_at, ready_after_s=daemon.tracker.ready_after_s, ready=daemon.ready,
        asked=settings.config, restarts=daemon.restarts, restart_policy=settings.restart,
        phases=daemon.tracker.phases, last_exit=daemon.last_exit,
    )  # fmt: skip


def request_views(daemon: Daemon) -> list[RequestView]:
    """What the supervisor alone knows, oldest first."""
    return daemon.inflight.views()
