"""Watching one engine process: a look at /proc each second, a turn of its loop asked for when none was seen.

Observations come in, a Verdict is asked for. Owns no socket: it asks through Calls. Ends with its engine."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.reports import EngineStats
from enginectl.control_stats import ProcessInfo
from enginectl.errors import CtlError
from enginectl.identity import CLOCK_TICKS, ProcStat, read_stat
from enginectl.supervisor.calls import Calls
from enginectl.supervisor.inflight import InflightTable
from enginectl.supervisor.kinds import KINDS, Kind
from enginectl.supervisor.loop import Loop
from enginectl.supervisor.stats import StatsBook
from enginectl.supervisor.verdict import Observation, Verdict, judge, predict_step_s

ASK_AFTER_S = 2.0
STATS_EVERY_S = 2.0
PING_LIMIT_S = 3600.0
"""A ping waits for the step that runs; the verdict, not this limit, says when that is too long."""
CPU_TICKS_ALIVE = 3
"""Clock ticks a second from which a process counts as computing."""
LATE_S = 2.0


class ProcessMeter:
    """CPU share and state of one pid, from one look a second."""

    def __init__(self, pid: int, group: Callable[[], list[int]] | None = None) -> None:
        """`group`: the processes whose CPU time counts as its own; it alone when left out."""
        self.pid = pid
        self._group = group
        self._ticks: int | None = None
        self.stat: ProcStat | None = read_stat(pid)
        self.cpu_percent = 0.0
        self.last_gain_at = time.monotonic()
        self._looked_at = self.last_gain_at

    def look(self, now: float) -> None:
        before, self.stat = self.stat, read_stat(self.pid)
        passed_s = max(now - self._looked_at, 1e-3)
        self._looked_at = now
        if before is None or self.stat is None:
            return
        gained = self.stat.cpu_ticks - before.cpu_ticks if self._group is None else self._gained(self._group())
        self.cpu_percent = 100.0 * gained / CLOCK_TICKS / passed_s
        if gained >= CPU_TICKS_ALIVE * passed_s:
            self.last_gain_at = now

    def _gained(self, pids: list[int]) -> int:
        """Ticks of the whole group since the last look; a member that went takes its own along."""
        before = self._ticks
        self._ticks = sum(stat.cpu_ticks for pid in pids if (stat := read_stat(pid)) is not None)
        return 0 if before is None else max(0, self._ticks - before)

    def info(self) -> ProcessInfo | None:
        if self.stat is None:
            return None
        return ProcessInfo(
            pid=self.pid, start_time=self.stat.start_time, cpu_percent=round(self.cpu_percent, 1),
            rss_bytes=self.stat.rss_bytes,
        )  # fmt: skip


class Health:
    """Of one run of an engine, from ready to its end."""

    def __init__(
        self,
        loop: Loop,
        calls: Calls,
        book: StatsBook,
        inflight: InflightTable,
        meter: ProcessMeter,
        max_step_s: float,
        on_turn: Callable[[], None],
        kind: Kind = KINDS["enginectl"],
    ) -> None:
        self.engine: EngineStats | None = None
        """The youngest answer to `stats`."""
        self._loop = loop
        self._calls = calls
        self._book = book
        self._inflight = inflight
        self._meter = meter
        self._max_step_s = max_step_s
        self._on_turn = on_turn
        self._kind = kind
        self._is_pinging = self._is_asking = False
        self._engine_at = self._asked_at = 0.0
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def tick(self, now: float) -> None:
        """Once a second while the engine serves."""
        if self._loop.late_s > LATE_S:  # it was us who did not run
            self._book.on_turn(now)
            self._meter.last_gain_at = now
        turned = self._book.turned_at or 0.0
        if now - turned >= ASK_AFTER_S and not self._is_pinging:
            self._loop.spawn(self._ping())
        every_s = 1.0 if self._is_pinging and now - turned > ASK_AFTER_S + 1.0 else STATS_EVERY_S
        if now - self._asked_at >= every_s and not self._is_asking:
            self.ask_soon()

    def ask_soon(self) -> None:
        """After a call that may have changed something."""
        if not self._closed:
            self._asked_at = time.monotonic()
            self._loop.spawn(self.ask())

    async def _ping(self) -> None:
        self._is_pinging = True
        try:
            await self._calls.raw(self._kind.ping, [], PING_LIMIT_S)
            if not self._closed:
                self._book.on_turn(time.monotonic())
                self._on_turn()
        except CtlError:
            pass
        finally:
            self._is_pinging = False

    async def ask(self) -> EngineStats | None:
        """The engine's own counters, from the lane that answers while a step runs; None when it does not answer."""
        self._is_asking = True
        try:
            answer = await self._counters()
        except CtlError:
            return None
        finally:
            self._is_asking = False
        self.engine, self._engine_at = answer, time.monotonic()
        self._book.is_held = answer.paused is not None or answer.sleeping
        return answer

    async def _counters(self) -> EngineStats:
        """Raises CtlError. A foreign engine has none: what its own utilities and its last step say is all there is,
        and there sleeping cannot be told from paused."""
        if self._kind.has_own_utilities:
            return await self._calls.get("stats", EngineStats, timeout_s=1.0)
        is_paused = await self._calls.get("is_scheduler_paused", bool, timeout_s=1.0)
        if not self._closed:
            self._book.on_turn(time.monotonic())
        last = self._book.last
        return EngineStats(
            phase="running", paused="paused" if is_paused else None, running=last.num_running_reqs,
            waiting=last.num_waiting_reqs,
        )  # fmt: skip

    def counts(self) -> tuple[int, int]:
        """(running, waiting): all in flight, split as the engine last said."""
        total = len(self._inflight)
        running = min(total, self._book.last.num_running_reqs)
        return running, total - running

    def observe(self, now: float, *, is_cordoned: bool) -> Observation:
        engine, stat = self.engine, self._meter.stat
        fresh = engine is not None and now - self._engine_at < 1.5
        step_s = engine.step_running_s + now - self._engine_at if engine and fresh and engine.step_running_s else None
        running, waiting = self.counts()
        ready = self._book.ready
        return Observation(
            proc_state=stat.state if stat else "S",
            turn_age_s=now - (self._book.turned_at or now),
            expects_turn=self._is_pinging,
            cpu_idle_s=now - self._meter.last_gain_at,
            step_running_s=step_s,
            predicted_step_s=predict_step_s(engine.step_tokens if engine else 0, list(self._book.step_tokens)),
            max_step_s=self._max_step_s,
            running=running,
            waiting=waiting,
            max_num_seqs=ready.max_num_seqs if ready else None,
            kv_used_ratio=self._book.last.kv_cache_usage,
            is_paused=engine is not None and engine.paused is not None,
            is_sleeping=engine is not None and engine.sleeping,
            is_cordoned=is_cordoned,
        )

    def verdict(self, *, is_cordoned: bool) -> Verdict:
        return judge(self.observe(time.monotonic(), is_cordoned=is_cordoned))
