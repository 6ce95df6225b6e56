"""EngineCoreProc: an EngineCore behind two queues and two IO threads, with a busy loop between them.

engine-in -> input_queue -> main loop (here) -> output_queue -> engine-out. The loop never touches a socket. It ends in
SystemExit(0) after a clean shutdown; any exception here, in the executor or in an IO thread becomes last words
(ENGINE_CORE_DEAD behind everything queued) and a non-zero exit."""

from __future__ import annotations

import logging
import time
from queue import Empty, SimpleQueue

import engine.utilities  # noqa: F401  (fills the table of what may be called)
from engine.config import EngineConfig
from engine.core import EngineCore, Outputs
from engine.counters import Counters
from engine.deferred import Deferred
from engine.errors import EngineBug, EngineDeadError, RequestRefused
from engine.executor.base import Executor
from engine.handshake import Handshake
from engine.io_threads import IOThreads
from engine.lifecycle import Event, Lifecycle, Phase
from engine.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    FinishReason,
    QueueDepths,
    SchedulerStats,
    UtilityOutput,
)
from engine.queues import (
    Abort,
    AbortsQueue,
    Add,
    Call,
    ClientGone,
    Emit,
    ExecutorFailed,
    InputQueue,
    OutputQueue,
    OutputsLost,
    Refuse,
    RefuseCall,
    ThreadDied,
    ToLoop,
    Wakeup,
)
from engine.reports import EngineStats
from engine.rpc import answer
from engine.scheduler.output import SchedulerOutput
from engine.scheduler.request import Request
from engine.signals import StopSignals
from engine.status import StatusReport
from engine.views import Published, publish

logger = logging.getLogger("engine")

LAST_WORDS_S = 6.0  # engine-out itself takes 5 s at most
ORPHAN_WORDS_S = 0.5
STARVED_YIELD_S = 0.001


class EngineCoreProc(EngineCore):
    """Built with a finished handshake; run_busy_loop() then owns the main thread until the engine ends."""

    def __init__(
        self,
        config: EngineConfig,
        handshake: Handshake,
        signals: StopSignals,
        status: StatusReport,
        engine_index: int = 0,
        executor: Executor | None = None,
    ) -> None:
        self.lifecycle = Lifecycle()
        self.signals = signals
        self.handshake = handshake
        self.counters = Counters()
        self.input_queue: InputQueue = SimpleQueue()
        self.aborts_queue: AbortsQueue = SimpleQueue()
        self.output_queue: OutputQueue = SimpleQueue()
        self.loop_counter = 0
        self.is_waiting = False
        """The loop waits for a message: no forward pass runs. Read by engine-in."""
        self.fault: str | None = None
        """Why the engine is dying, once it is."""
        self._idle_reported = True
        self._io_threads: IOThreads | None = None
        super().__init__(config, executor, status, engine_index)
        self.executor.register_failure_callback(lambda cause: self.input_queue.put(ExecutorFailed(cause)))
        self.ready = self.ready_response()
        self.published = Published(EngineStats(phase=Phase.STARTING.value))
        self.deferred = Deferred(self.scheduler, self.lifecycle)
        self.publish()

    def start_threads(self) -> None:
        """Connects to every client and sends each the ready response. Raises EngineStartError after 10 s."""
        self._io_threads = IOThreads(self)
        self._io_threads.start()

    # ------------------------------------------------------------ the loop

    def begin(self) -> None:
        """From here on calls are answered. Before READY, since a frontend calls as soon as it has that."""
        self.lifecycle.advance(Event.STARTED)
        self.publish()

    def run_busy_loop(self) -> None:
        """Until a final phase. Raises EngineDeadError when the engine can no longer work."""
        if self.lifecycle.phase is Phase.STARTING:
            self.begin()
        while not self.lifecycle.phase.is_final:
            self._process_input_queue()
            self._handle_shutdown()
            outputs = self._process_engine_step()
            self.loop_counter += 1
            self.publish()  # before post_step: who has an output reads figures that are no older
            if outputs is not None:
                self.post_step(outputs)
            self.deferred.complete()

    def _process_input_queue(self) -> None:
        """Blocks without work (no CPU when idle), never with work; then empties the queue."""
        if not self.scheduler.has_work and self.lifecycle.phase.may_sleep and not self.signals.requested:
            self._report_idle()
            self._clear_aborts_queue()
            self.rest()
            self.is_waiting = True
            message = self.input_queue.get()
            self.is_waiting = False
            self._handle_client_request(message)
        while True:
            try:
                message = self.input_queue.get_nowait()
            except Empty:
                return
            self._handle_client_request(message)

    def _process_engine_step(self) -> Outputs | None:
        """None when nothing ran."""
        if not (self.lifecycle.phase.may_step and self.scheduler.has_work):
            return None
        outputs = self.step(self._process_aborts_queue)
        if self.last_step.rows:
            return outputs
        time.sleep(STARVED_YIELD_S)
        return None

    def post_step(self, outputs: Outputs) -> None:
        """Sends what the step gave; its figures go along to one client and into the flight record."""
        began = time.perf_counter()
        stats = self._scheduler_stats(self.last_step)
        self._record(stats)
        self.observe_ms += (time.perf_counter() - began) * 1e3
        self._idle_reported = False
        first = min(outputs) if outputs else 0
        self._emit(first, outputs.pop(first, []), stats)
        for client, items in outputs.items():
            self._emit(client, items)

    def _report_idle(self) -> None:
        """Once when work ends, so that watchers see empty queues."""
        if not self._idle_reported:
            self._idle_reported = True
            self._emit(0, [], self._scheduler_stats(None))

    def _record(self, stats: SchedulerStats) -> None:
        timings = self.timings
        self.flight_record.add(
            stats.step_counter,
            time.monotonic(),
            stats.num_scheduled_tokens,
            stats.num_prefill_tokens,
            stats.num_running_reqs,
            stats.num_waiting_reqs,
            self.scheduler.kv_cache.num_free,
            stats.num_preempted,
            timings.schedule_ms,
            timings.execute_ms,
            timings.sample_ms,
            timings.update_ms,
        )

    def _scheduler_stats(self, step: SchedulerOutput | None) -> SchedulerStats:
        stats = self.scheduler.make_stats(step)
        stats.loop_counter = self.loop_counter
        stats.step_timings = self.timings
        stats.queue_depths = self._queue_depths()
        stats.rejected_messages = self.counters.rejected_messages
        stats.dropped_outputs = self.counters.dropped_outputs
        return stats

    def _queue_depths(self) -> QueueDepths:
        return QueueDepths(
            input_queue=self.input_queue.qsize(),
            output_queue=self.output_queue.qsize(),
            aborts_queue=self.aborts_queue.qsize(),
            pending_bytes=self.counters.pending_bytes,
        )

    def publish(self) -> None:
        """Makes the state of this moment visible to other threads."""
        began = time.perf_counter()
        publish(self)
        self.observe_ms += (time.perf_counter() - began) * 1e3

    # ------------------------------------------------------------ one message

    def _handle_client_request(self, message: ToLoop) -> None:
        match message:
            case Add(request=request, abort_immediately=abort_immediately):
                self._handle_add(request, abort_immediately)
            case Refuse(request_id=request_id, client_index=client, text=text):
                self._finish_unadmitted(request_id, client, FinishReason.ERROR, text)
            case Abort(request_ids=ids, seq=seq):
                self.emit_all(self.abort_requests(ids, before_seq=seq))
            case Call(call=call):
                answer(self, call)
            case RefuseCall(call_id=call_id, client_index=client, text=text):
                self.emit_utility(client, UtilityOutput(call_id, text))
            case ClientGone(client_index=client):
                logger.warning("client %d reads nothing: its requests are aborted, its outputs dropped", client)
                self.emit_all(self.abort_requests(None, client_index=client))
            case OutputsLost(request_ids=ids):
                self.emit_all(self.abort_requests(ids))
            case ExecutorFailed(cause=cause):
                raise EngineDeadError(f"the executor failed: {cause}")
            case ThreadDied(name=name, cause=cause):
                raise EngineDeadError(f"thread {name} died: {cause}")
            case Wakeup():
                pass

    def _handle_add(self, request: Request, abort_immediately: bool) -> None:
        if not self.lifecycle.phase.may_admit:
            self._finish_unadmitted(request.request_id, request.client_index, FinishReason.ABORT, None)
            return
        try:
            self.add_request(request)
        except RequestRefused as error:
            self._finish_unadmitted(request.request_id, request.client_index, FinishReason.ERROR, str(error))
            return
        if abort_immediately:
            self.emit_all(self.abort_requests([request.request_id]))

    def _finish_unadmitted(self, request_id: str, client: int, reason: FinishReason, text: str | None) -> None:
        self.counters.refused_requests += 1
        self._emit(client, [EngineCoreOutput(request_id, [], finish_reason=reason, stop_reason=text)])

    def _process_aborts_queue(self) -> None:
        """The early lane: aborts that arrived while the model ran take effect before its outputs are used."""
        while True:
            try:
                abort = self.aborts_queue.get_nowait()
            except Empty:
                return
            self.emit_all(self.abort_requests(abort.request_ids, before_seq=abort.seq))

    def _clear_aborts_queue(self) -> None:
        """Their twins in input_queue have been handled or will be: nothing that is live depends on them."""
        while True:
            try:
                self.aborts_queue.get_nowait()
            except Empty:
                return

    # ------------------------------------------------------------ outputs

    def _emit(self, client: int, items: list[EngineCoreOutput], stats: SchedulerStats | None = None) -> None:
        self.output_queue.put(Emit(client, EngineCoreOutputs(self.engine_index, items, stats, time.monotonic())))

    def emit_all(self, outputs: Outputs) -> None:
        """Final outputs between or within steps; who has one reads figures that are no older."""
        if outputs:
            self.publish()
        for client, items in outputs.items():
            self._emit(client, items)

    def emit_utility(self, client: int, result: UtilityOutput) -> None:
        """Answers one call. Any thread."""
        self.output_queue.put(Emit(client, EngineCoreOutputs(self.engine_index, [], None, time.monotonic(), result)))

    # ------------------------------------------------------------ the end

    def _handle_shutdown(self) -> None:
        """Signals, the drain's deadline, and the moment when no work is left."""
        life = self.lifecycle
        if self.signals.requested:
            self.signals.requested = False
            grace = self.config.orphan_grace_s if self.signals.is_orphan else self.config.shutdown_timeout_s
            self.begin_shutdown(grace, may_cancel=False)
        if life.is_overdue:
            logger.warning("drain deadline reached with %d requests left", self.scheduler.num_unfinished)
            life.advance(Event.DEADLINE_REACHED)
        if life.phase is Phase.ABORTING:
            self.emit_all(self.abort_requests(None))
        if life.phase in (Phase.DRAINING, Phase.ABORTING) and not self.scheduler.has_unfinished:
            self._report_idle()
            life.advance(Event.WORK_DONE)

    def begin_shutdown(self, timeout_s: float, *, may_cancel: bool) -> None:
        phase = self.lifecycle.ask_shutdown(timeout_s, may_cancel=may_cancel)
        logger.info("shutdown asked: %s, %d requests in flight", phase.value, self.scheduler.num_unfinished)
        self.deferred.complete()  # before anybody can take the shutdown back: what waits is cancelled by it
        if phase is not Phase.DRAINING:
            return
        if self.scheduler.has_unfinished:
            try:
                self.wake_up()
            except Exception:
                logger.exception("the engine cannot wake up to finish its requests: they are aborted")
                self.lifecycle.advance(Event.ABORT_ASKED)
        if not self.sleep_level:
            self.resume_scheduler()

    def _refuse_what_is_queued(self) -> None:
        """Of an engine that dies ENGINE_CORE_DEAD says it all: an ABORT would be an empty answer that looks whole."""
        while self.fault is None:
            try:
                message = self.input_queue.get_nowait()
            except Empty:
                return
            match message:
                case Add(request=request):
                    self._finish_unadmitted(request.request_id, request.client_index, FinishReason.ABORT, None)
                case Refuse() | RefuseCall() | Call():
                    self._handle_client_request(message)

    def shutdown(self) -> None:
        """Last words, threads, sockets, executor. In that order; safe to call twice. An orphan has nobody left to
        listen, and does not wait long for that."""
        if self._io_threads is not None:
            limit_s = ORPHAN_WORDS_S if self.signals.is_orphan else LAST_WORDS_S
            self._io_threads.end(self._refuse_what_is_queued, limit_s)
        super().shutdown()

    def die(self, error: BaseException) -> None:
        """Marks the engine dead; shutdown() then says it to everybody."""
        self.fault = f"{type(error).__name__}: {error}"
        if not isinstance(error, EngineBug) and self.lifecycle.phase is not Phase.DEAD:
            logger.error("the engine dies: %s", self.fault)
        self.lifecycle.phase = Phase.DEAD
        self.status.failed(error, phase="dead")
