"""Both IO threads of an engine, from their start to the last words.

Owns the zmq context and the two threads; the queues between them and the loop are the engine's. Main thread only. Dies
by end(); of a thread that dies before, the loop hears through input_queue."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import zmq

from engine.dialect import forced_dialect
from engine.errors import EngineStartError
from engine.io_in import InputThread
from engine.io_out import OutputThread
from engine.queues import FromLoop, LastWords, OutputQueue, ThreadDied
from engine.rpc import answer_instantly

if TYPE_CHECKING:
    from engine.proc import EngineCoreProc

logger = logging.getLogger("engine")

START_S = 10.0
STOP_READING_S = 1.0


class IOThreads:
    def __init__(self, engine: EngineCoreProc) -> None:
        self._engine = engine
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._out = self._new_output_thread(engine.output_queue)
        self._in = InputThread(
            context=self._context,
            addresses=engine.handshake.addresses,
            engine_index=engine.engine_index,
            ready_response=engine.ready,
            input_queue=engine.input_queue,
            aborts_queue=engine.aborts_queue,
            output_queue=engine.output_queue,
            admit=engine.preprocess_add_request,
            instant=lambda call: answer_instantly(engine, call),
            send_at_once=self._out.send_at_once,
            is_loop_waiting=lambda: engine.is_waiting,
            dialects=self._out.dialects,
            counters=engine.counters,
        )

    def _new_output_thread(self, queue: OutputQueue) -> OutputThread:
        engine = self._engine
        return OutputThread(
            context=self._context,
            addresses=engine.handshake.addresses,
            engine_index=engine.engine_index,
            output_queue=queue,
            input_queue=engine.input_queue,
            counters=engine.counters,
            client_byte_budget=engine.config.client_byte_budget,
            dialect=forced_dialect(engine.config.dialect),
        )

    def start(self) -> None:
        """Connects to every client and sends each the ready response. While the input thread lives and a coordinator
        is expected, waiting goes on; else raises EngineStartError after START_S."""
        self._out.start()
        self._in.start()
        began = time.monotonic()
        has_coordinator = self._engine.handshake.addresses.coordinator_input is not None
        while not self._in.started.wait(0.2):
            waited = time.monotonic() - began
            if not self._in.is_alive() or (waited > START_S and not has_coordinator):
                raise EngineStartError(
                    f"the input thread was not ready after {waited:.1f} s", phase="handshake", cause=self._fault()
                )

    def _fault(self) -> str:
        try:
            message = self._engine.input_queue.get_nowait()
        except Empty:
            return ""
        return message.cause if isinstance(message, ThreadDied) else ""

    def end(self, refuse_what_is_queued: Callable[[], None], limit_s: float) -> None:
        """ENGINE_CORE_DEAD to every client after what is queued, then threads and sockets end. `limit_s`: for each
        attempt to say it. Safe to call twice."""
        if self._context.closed:
            return
        has_stopped = self._in.stop(STOP_READING_S)
        refuse_what_is_queued()
        self._engine.output_queue.put(LastWords())
        self._out.join(limit_s)
        for left in (self._engine.output_queue, SimpleQueue[FromLoop]()):
            if self._out.is_broken:
                self._replace_output_thread(left, limit_s)
        if self._out.is_alive():
            logger.error("engine-out did not finish within %.0f s: some clients may not have heard", limit_s)
        elif has_stopped:  # a socket may not be closed while its thread uses it
            self._context.destroy(linger=0)

    def _replace_output_thread(self, left: OutputQueue, limit_s: float) -> None:
        """engine-out died: another one, with sockets of its own, says what is left and the last words. What killed
        the first may be queued once more, so the last one finds nothing else."""
        dialects = self._out.dialects
        self._out = self._new_output_thread(left)
        self._out.dialects = dialects
        left.put(LastWords())
        self._out.start()
        self._out.join(limit_s)
