"""Output thread: what the main loop emits becomes frames on each client's socket, in order.

Takes from output_queue; owns one PUSH per client and the optional coordinator's, and lends them to engine-in for short
answers (send_at_once). Writes ClientGone and, dying, ThreadDied to input_queue. Ends after LastWords, 5 s at most. A
client that reads slowly is waited for without making the others wait; one that leaves more than its byte budget unread
loses its outputs until it has caught up."""

from __future__ import annotations

import logging
import queue
import threading
import time
from contextlib import ExitStack

import zmq

from engine.codec import Dialect, encode_outputs, utility_failure
from engine.counters import Counters
from engine.losses import Losses
from engine.messages import ENGINE_CORE_DEAD, EngineCoreOutputs, EngineZmqAddresses
from engine.outbox import BufferPool, Outbox
from engine.queues import ClientGone, Emit, FromLoop, InputQueue, LastWords, OutputQueue, OutputsLost, ThreadDied
from engine.time_slice import shorten_time_slice

logger = logging.getLogger("engine")

NAME = "engine-out"
COORDINATOR = -1
LAST_WORDS_S = 5.0
RETRY_MIN_S = 0.001
RETRY_MAX_S = 0.05
"""How soon a full socket is tried again; doubles from the one to the other while nothing moves."""


class OutputThread(threading.Thread):
    """start(), then LastWords through the queue and join(). `dialects` is written by engine-in."""

    def __init__(
        self,
        *,
        context: zmq.Context[zmq.Socket[bytes]],
        addresses: EngineZmqAddresses,
        engine_index: int,
        output_queue: OutputQueue,
        input_queue: InputQueue,
        counters: Counters,
        client_byte_budget: int,
        last_words_s: float = LAST_WORDS_S,
        dialect: Dialect | None = None,
    ) -> None:
        """`dialect`: of every client, whatever they show."""
        super().__init__(name=NAME, daemon=True)
        self.dialects = {client: dialect for client in range(len(addresses.outputs)) if dialect is not None}
        self.is_broken = False
        """It ended with an exception: what was queued, and the last words, have not been said."""
        self._context = context
        self._addresses = addresses
        self._engine_index = engine_index
        self._output_queue = output_queue
        self._input_queue = input_queue
        self._counters = counters
        self._byte_budget = client_byte_budget
        self._last_words_s = last_words_s
        self._outboxes: dict[int, Outbox] = {}
        self._losses: dict[int, Losses] = {}
        self._is_sending = False
        """It has taken something from the queue that has not gone out or been kept for later."""
        self._pool = BufferPool(0)

    def send_at_once(self, client: int, outputs: EngineCoreOutputs) -> bool:
        """Past the queue, when nothing waits in it or before this client: a thread less to wake. Thread engine-in.
        False, and nothing is sent, when it has to go through the queue. Raises nothing."""
        outbox = self._outboxes.get(client)
        if outbox is None or self._is_sending or not self._output_queue.empty():
            return False
        try:
            frames = encode_outputs(outputs, self.dialects.get(client, Dialect.UNKNOWN), bytearray())
            return outbox.send_at_once(frames)
        except (Exception, RecursionError, MemoryError):  # engine-out meets it too, and says so to the caller
            return False

    def run(self) -> None:
        shorten_time_slice()
        try:
            with ExitStack() as stack:
                self._open(stack)
                self.process_output_sockets()
        except BaseException as error:
            logger.exception("%s died", NAME)
            self.is_broken = True
            self._input_queue.put(ThreadDied(NAME, f"{type(error).__name__}: {error}"))

    def _open(self, stack: ExitStack) -> None:
        addresses = dict(enumerate(self._addresses.outputs))
        if self._addresses.coordinator_output is not None:
            addresses[COORDINATOR] = self._addresses.coordinator_output
        self._pool = BufferPool(len(addresses) + 1)
        for client, address in addresses.items():
            outbox = Outbox(self._context, address, self._pool, self._byte_budget)
            stack.callback(outbox.close, 0)
            self._outboxes[client] = outbox
            self._losses[client] = Losses()

    def process_output_sockets(self) -> None:
        """Encodes and sends until LastWords."""
        retry_s = RETRY_MIN_S
        while True:
            is_settled = all(outbox.is_settled for outbox in self._outboxes.values())
            item = self._next(None if is_settled else retry_s)
            self._is_sending = item is not None
            if isinstance(item, LastWords):
                self._send_last_words()
                return
            has_moved = item is not None
            if item is not None:
                self._send(item)
            if not is_settled:
                has_moved = self._flush() or has_moved
            self._is_sending = False
            retry_s = RETRY_MIN_S if has_moved else min(2 * retry_s, RETRY_MAX_S)
            self._counters.pending_bytes = sum(outbox.held_bytes for outbox in self._outboxes.values())

    def _next(self, timeout_s: float | None) -> FromLoop | None:
        try:
            return self._output_queue.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _flush(self) -> bool:
        moved = [outbox.flush() for outbox in self._outboxes.values()]
        for client, losses in self._losses.items():
            if losses.is_due and not self._outboxes[client].is_dropping:
                self._tell_late(client, losses)
        return any(moved)

    def _tell_late(self, client: int, losses: Losses) -> None:
        """It has caught up."""
        for outputs in losses.take_told_late(self._engine_index):
            self._send(Emit(client, outputs))
        cut = losses.take_unreported()
        if cut:
            self._input_queue.put(OutputsLost(cut))
        logger.warning("client %d reads again; what it lost has been told, %d requests are aborted", client, len(cut))

    def _send(self, item: Emit) -> None:
        outbox = self._outboxes.get(item.client_index)
        if outbox is None:
            logger.error("an output for client %d, which does not exist, is dropped", item.client_index)
            self._counters.dropped_outputs += 1
            return
        losses = self._losses[item.client_index]
        if outbox.is_dropping:
            self._lose(losses, item.outputs)
            return
        outputs = losses.without_the_cut(item.outputs) if losses.cut else item.outputs
        if outputs is None:
            return
        frames = self._encode(outputs, self.dialects.get(item.client_index, Dialect.UNKNOWN))
        if not outbox.send(frames):
            self._lose(losses, outputs)
            self._input_queue.put(ClientGone(item.client_index))

    def _lose(self, losses: Losses, outputs: EngineCoreOutputs) -> None:
        self._counters.dropped_outputs += 1
        losses.note(outputs)

    def _encode(self, outputs: EngineCoreOutputs, dialect: Dialect) -> list[bytes | bytearray]:
        """What cannot be encoded in an answer to a call is that call's failure; in anything else it is our bug."""
        buffer = self._pool.take()
        try:
            return encode_outputs(outputs, dialect, buffer)
        except BufferError:  # the free buffer's memory is still looked at; it is forgotten
            return encode_outputs(outputs, dialect, bytearray())
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            if outputs.utility_output is None:
                raise
            text = f"the result cannot be sent: {type(error).__name__}: {error}"
            failure = utility_failure(outputs.utility_output.call_id, text)
            instead = EngineCoreOutputs(self._engine_index, timestamp=time.monotonic(), utility_output=failure)
            return encode_outputs(instead, dialect, bytearray())

    def _send_last_words(self) -> None:
        """Everything that waits, then ENGINE_CORE_DEAD to every client; what zmq holds goes on in the linger time."""
        end = time.monotonic() + self._last_words_s
        outboxes = [outbox for client, outbox in self._outboxes.items() if client != COORDINATOR]
        for outbox in outboxes:
            outbox.append_last([ENGINE_CORE_DEAD])
        while any(outbox.has_pending for outbox in outboxes) and time.monotonic() < end:
            if not self._flush():
                _wait_writable([outbox for outbox in outboxes if outbox.has_pending], end)
        for client, outbox in self._outboxes.items():
            if outbox.has_pending:
                logger.error("client %d did not read the last %d bytes", client, outbox.held_bytes)
            outbox.close(max(0.0, end - time.monotonic()))


def _wait_writable(outboxes: list[Outbox], end: float) -> None:
    poller = zmq.Poller()
    for outbox in outboxes:
        poller.register(outbox.socket, zmq.POLLOUT)
    poller.poll(max(1, int((end - time.monotonic()) * 1000)))
