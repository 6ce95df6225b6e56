"""One supervisor: its parts put together, its signals, its ticks.

Everything it owns ends in close(). What it does over time is in keeper (start, death, restart), ending (stop) and
draining; what it answers is in handlers."""

from __future__ import annotations

import os
import secrets
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import zmq
from msgspec import Raw

from engine.codec import forced_dialect
from engine.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreReadyResponse
from engine.reports import EngineDescription
from enginectl.control import ExitInfo, State
from enginectl.errors import BadRuntimeDir, CtlError, EngineDied, StartFailed, WrongState
from enginectl.record import LastStart, read_json, write_json
from enginectl.rundir import EnginePaths
from enginectl.settings import EngineSettings
from enginectl.supervisor.api_server import ApiServer
from enginectl.supervisor.bridge import Bridge
from enginectl.supervisor.calls import Calls
from enginectl.supervisor.child import Child, StatusLine, reap_orphans
from enginectl.supervisor.crowd import Crowd
from enginectl.supervisor.draining import Drain
from enginectl.supervisor.events import EventLog
from enginectl.supervisor.exporter import Exporter
from enginectl.supervisor.flight import FlightRing
from enginectl.supervisor.gates import Attempt
from enginectl.supervisor.gpus import gpu_meter
from enginectl.supervisor.handlers import dispatch
from enginectl.supervisor.health import Health, ProcessMeter
from enginectl.supervisor.hints import Hints
from enginectl.supervisor.inflight import InflightTable
from enginectl.supervisor.kinds import KINDS, Kind
from enginectl.supervisor.logs import RotatingFile
from enginectl.supervisor.loop import Future, Loop
from enginectl.supervisor.notify import Notifier
from enginectl.supervisor.phases import StartTracker
from enginectl.supervisor.publishing import publish_pages
from enginectl.supervisor.relay import Relay
from enginectl.supervisor.repair import Held, Possessions
from enginectl.supervisor.seats import Seat
from enginectl.supervisor.server import Server
from enginectl.supervisor.stall import StallWatch
from enginectl.supervisor.stats import StatsBook
from enginectl.supervisor.stopping import Stop
from enginectl.supervisor.tables import Tables
from enginectl.supervisor.traffic import Traffic
from enginectl.supervisor.view import engine_view, record_of, state_of

Phase = Literal["starting", "serving", "backoff", "failed", "exited"]
LIVE: frozenset[State] = frozenset({"idle", "busy", "saturated"})
"""States between which an engine changes all the time; the record does not follow."""
TICK_S = 1.0
FAST_TICK_S = 0.25
DEAD_EXIT_S = 10.0
"""How long an engine that said it is dead gets to end."""


class Daemon:
    """State shared by the tasks of one supervisor. Main thread only."""

    def __init__(self, settings: EngineSettings, paths: EnginePaths, base: Path, held: Held, foreground: bool) -> None:
        self.settings = settings
        self.paths = paths
        self.base = base
        self.foreground = foreground
        self.instance = secrets.token_hex(3)
        self.began = time.monotonic()
        self.loop = Loop()
        self.loop.on_fault = self._on_fault
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.possessions = Possessions(self, *held)
        self.log = RotatingFile(paths.supervisor_log)
        self.engine_log = RotatingFile(paths.engine_log)
        self.events = EventLog(self.write_log)
        self.inflight = InflightTable()
        self.crowd = Crowd(self.loop, self.events, settings.name)
        self.consumers: dict[str, Callable[[EngineCoreOutput], None]] = {}
        self.book = StatsBook()
        self.flight = FlightRing()
        forced = forced_dialect(str(settings.config.get("dialect", "auto")))
        self.relay = Relay(self.loop, self.context, base, self, dialect=forced)
        self.calls = Calls(self.loop, self.relay)
        self.tables = Tables(self.loop, self.calls, lambda: self.kind.has_own_utilities)
        self.traffic = Traffic(self)
        self.api: ApiServer | None = None
        """The frontend of a command that was split."""
        if settings.frontend_args is not None:
            self.api = ApiServer(self, settings)
        join = self.api.handshake_address if self.api is not None else settings.join
        self.bridge = Bridge(self, join) if join else None
        self.server = Server(self.loop, self.context, base, lambda session: dispatch(self, session))
        self.hints = Hints(base)
        self.notifier = Notifier()
        self.exporter: Exporter | None = None
        """Serves metrics, once somebody asked for it."""
        self.meter = ProcessMeter(os.getpid())
        self.gpus = gpu_meter(self)
        self._begin_state()

    def _begin_state(self) -> None:
        self.phase: Phase = "starting"
        self.reason = ""
        self.notice = ""
        """Something worth telling beside a healthy state, e.g. a socket that was taken."""
        self.is_cordoned = False
        self.attempts: list[Attempt] = []
        """Pauses, resumes, sleeps and wakes that go on, oldest first."""
        self.undos: list[str] = []
        """Utilities that are on their way to the engine, to take back such a one."""
        self.drain: Drain | None = None
        self.stopping: Stop | None = None
        self.expected = ""
        """Who asked for the end that is coming; empty: nobody, and then it is a failure."""
        self.is_restarting = False
        """The start that goes on, or was the last, was asked for by a restart."""
        self.was_ever_ready = False
        self.has_signalled = False
        """KILL was sent on request, so an end by it was asked for."""
        self.child: Child | None = None
        self.engine_meter: ProcessMeter | None = None
        self.health: Health | None = None
        self.ready: EngineCoreReadyResponse | None = None
        self.description: EngineDescription | None = None
        self.last_exit: ExitInfo | None = None
        self.restarts = 0
        self.restart_times: list[float] = []
        self.next_restart_at: float | None = None
        last = read_json(self.paths.last_start, LastStart)
        self.last_start_s = self.last_ready_after_s = last.ready_after_s if last else None
        """The youngest start that became ready, and the one before the present run."""
        self.tracker = StartTracker(last)
        self.became_ready: Future[EngineCoreReadyResponse] = Future()
        self.gone: Future[ExitInfo] = Future()
        """This run's engine and its whole group are gone."""
        self.engine_exit: Future[ExitInfo] = Future()
        """Its process has ended; what it left behind may live."""
        self.stop_asked: Future[None] = Future()
        self.over: Future[None] = Future()
        """No other run will come."""
        self.log_taps: list[Callable[[bytes], None]] = []
        """Who reads along in the engine's log for a moment."""
        self.unreadable = 0
        self._told_unreadable_at = 0.0
        self._change: Future[None] = Future()
        self._recorded = ""
        self._record_seen: tuple[int, int, int] | None = None
        self.stall = StallWatch(self)
        self.heard_dead = False
        self.http = ""
        """URL where a frontend of ours serves."""

    # ------------------------------------------------------------ change and record

    def changed(self) -> None:
        """Wakes whoever watches, and writes the record when its state, or the phase of its start, is another."""
        state, _ = state_of(self)
        word = "ready" if state in LIVE else f"starting {self.tracker.current}" if state == "starting" else state
        if word != self._recorded:
            self._recorded = word
            self.write_record()
        publish_pages(self, with_metrics=False)
        change, self._change = self._change, Future()
        change.set_result(None)

    @property
    def next_change(self) -> Future[None]:
        return self._change

    def write_record(self, *, ended: bool = False) -> None:
        try:
            self.save_record(ended=ended)
        except (BadRuntimeDir, OSError) as error:
            self.write_log(f"record not written: {error}")

    def save_record(self, *, ended: bool) -> None:
        """Raises BadRuntimeDir or OSError."""
        write_json(self.paths.record, record_of(self, ended=ended))
        self._record_seen = self._record_mark()

    def has_own_record(self) -> bool:
        """Whether record.json is the one that was written here last."""
        return self._record_seen is not None and self._record_mark() == self._record_seen

    def _record_mark(self) -> tuple[int, int, int] | None:
        """A number alone would not do: it is given to the next file."""
        try:
            seen = os.lstat(self.paths.record)
        except OSError:
            return None
        return (seen.st_ino, seen.st_mtime_ns, seen.st_mode)

    def write_log(self, text: str) -> None:
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n".encode("utf-8", "replace")
        self.log.write(line)
        self._echo(line)

    def _echo(self, data: bytes) -> None:
        """In the foreground; a terminal that went away costs the copy."""
        if self.foreground:
            try:
                os.write(2, data)
            except OSError:
                pass

    def on_engine_log(self, data: bytes) -> None:
        self.engine_log.write(data)
        if not self.kind.tells_phases and self.phase == "starting":
            self.tracker.on_log(data)
        self._echo(data)
        for tap in self.log_taps:
            tap(data)

    def _on_fault(self, fault: BaseException) -> None:
        self.write_log("bug: " + "".join(traceback.format_exception(fault)))

    # ------------------------------------------------------------ what the relay sees

    @property
    def kind(self) -> Kind:
        return KINDS[self.settings.engine]

    def on_hello(self) -> None:
        self.write_log("engine said HELLO")
        if not self.kind.tells_phases:
            self.tracker.on_line(StatusLine(phase="loading", event="begin"))
            self.changed()

    def on_ready(self, response: EngineCoreReadyResponse) -> None:
        if self.api is None or self.api.serves:
            self.became_ready.set_result(response)
        else:
            self.loop.spawn(self.api.serve(response))

    def on_join_trouble(self, text: str) -> None:
        """The frontend's handshake does not go on: a start fails with it, later it is only told."""
        if not self.became_ready.done and self.child is not None and not self.restarts:
            self.tracker.error = self.tracker.error or text
            self.child.signal_group(signal.SIGKILL)
        self.changed()

    def on_outputs(self, seat: Seat, message: EngineCoreOutputs) -> None:
        now = time.monotonic()
        for output in self.traffic.on_outputs(seat, message):
            known = self.inflight.flights.get(output.request_id)
            was_at = known.last_at if known else None
            flight = self.inflight.on_output(output, now)
            self.book.on_output(output, flight, was_at, now)
            consumer = self.consumers.get(output.request_id)
            if consumer is not None and seat.is_own:
                consumer(output)
        if message.scheduler_stats is not None:
            self.book.on_step(message.scheduler_stats, now)
            self.flight.add(message.scheduler_stats, now)
        if message.utility_output is not None and seat.is_own:
            self.calls.on_answer(message.utility_output)

    def on_dead_notice(self) -> None:
        """Not passed on: what it means for the clients is decided when its process has ended, which it must now."""
        if not self.heard_dead:
            self.heard_dead = True
            self.write_log("engine said ENGINE_CORE_DEAD")
            self.loop.spawn(self._end_dead(self.child))

    async def _end_dead(self, child: Child | None) -> None:
        if child is not None and not await self.loop.first(child.exited, timeout_s=DEAD_EXIT_S):
            self.events.add("dead", f"said that it is dead and has not ended in {DEAD_EXIT_S:g} s: KILL")
            child.signal_group(signal.SIGKILL)

    def on_unreadable(self, where: str, error: str) -> None:
        """Counted; told at most once a second, since a scanner's noise has no end."""
        self.unreadable += 1
        now = time.monotonic()
        if now - self._told_unreadable_at >= 1.0:
            self._told_unreadable_at = now
            self.events.add("unreadable", f"{where}: {error[:300]} ({self.unreadable} in all)")

    # ------------------------------------------------------------ may I

    @property
    def is_without_engine(self) -> bool:
        """Between two runs, or after the last."""
        return self.phase == "backoff" or self.child is None or self.gone.done

    @property
    def is_over(self) -> bool:
        return self.over.done

    def check_serving(self, act: str) -> None:
        """Raises WrongState or EngineDied when there is no engine that could do `act`."""
        state, reason = state_of(self)
        if self.phase in ("failed", "exited", "backoff"):
            raise self.died()
        if self.health is None or self.stopping is not None:
            raise WrongState(f"{act}: engine {self.settings.name!r} is {state}" + (f" ({reason})" if reason else ""))

    def check_admits(self) -> None:
        self.check_serving("generate")
        self.check_uncordoned()

    def check_uncordoned(self) -> None:
        name = self.settings.name
        if self.drain is not None:
            raise WrongState(
                f"engine {name!r} is draining: new requests are refused", try_=[f"enginectl uncordon {name}"]
            )
        if self.is_cordoned:
            raise WrongState(
                f"engine {name!r} is cordoned: new requests are refused", try_=[f"enginectl uncordon {name}"]
            )

    def died(self) -> CtlError:
        """The error for everybody who waits for this engine."""
        ended, name = self.last_exit, self.settings.name
        if ended is None:
            return EngineDied(f"engine {name!r} ended")
        how = f"signal {ended.signal}" if ended.signal else f"exit {ended.code}"
        text = f"engine {name!r} was stopped ({how})" if ended.requested else f"engine died ({how})"
        phase = f" in phase '{ended.phase}'" if ended.phase else ""
        return EngineDied(text + phase, cause=ended.cause, see=[f"enginectl logs {name}"])

    def start_failed(self) -> CtlError:
        """The error for whoever waited for ready."""
        ended, name = self.last_exit, self.settings.name
        if ended is None or not ended.phase:
            return self.died()
        how = f"signal {ended.signal}" if ended.signal else f"exit {ended.code}"
        return StartFailed(
            f"engine {name!r} failed in phase '{ended.phase}' ({how})",
            cause=ended.cause,
            see=[f"enginectl logs {name} -n 50"],
        )

    # ------------------------------------------------------------ ticks

    def tick(self) -> None:
        """Each second: look, judge, publish, repair."""
        self.loop.after(TICK_S, self.tick)
        if os.getpid() == 1:
            children = (self.child, self.api.child if self.api is not None else None)
            reap_orphans([child.pid for child in children if child is not None])
        now = time.monotonic()
        self.meter.look(now)
        if self.engine_meter is not None:
            self.engine_meter.look(now)
        if self.health is not None:
            self.health.tick(now)
            self.book.tick(now, *self.health.counts())
            if slow := self.book.slow.news(now):
                self.events.add("slow-step", slow)
            self.stall.look(state_of(self))
        self.possessions.look()
        self.publish(now)
        self.changed()

    def fast_tick(self) -> None:
        """While it starts, and for somebody who has just subscribed."""
        self.loop.after(FAST_TICK_S, self.fast_tick)
        if self.server.take_new_watcher() or (self.health is None and self.phase == "starting"):
            self.publish(time.monotonic())

    def publish(self, now: float) -> None:
        self.notifier.tick(*state_of(self))
        if self.server.has_watchers:
            self.server.publish(Raw(msgspec.msgpack.encode(engine_view(self))))
        publish_pages(self, with_metrics=True)
        self.hints.update(now, self.inflight, self.description)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Sockets, files, the engine's death pipe. What was answered may still leave."""
        if self.child is not None:
            self.child.close()
        if self.exporter is not None:
            self.exporter.close()
        self.server.close()
        if self.bridge is not None:
            self.bridge.close()
        self.relay.close()
        self.context.term()
        self.hints.remove()
        self.notifier.close()
        self.log.close()
        self.engine_log.close()
