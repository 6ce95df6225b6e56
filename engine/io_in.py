"""Input thread: frames from the clients become messages in input_queue, aborts in aborts_queue too.

Owns one DEALER per client and the optional coordinator XSUB. Writes input_queue, aborts_queue and `dialects`; sends the
answers of instant utilities at once, or puts them into output_queue, and stays awake for a moment between quick ones
(busy_poll). A message that cannot be read is counted, answered when it has an id, and dropped. Dies by stop(), or by
posting ThreadDied to input_queue; never in silence."""

from __future__ import annotations

import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import zmq

from engine import limits
from engine.busy_poll import BusyPoll
from engine.codec import Dialect, decode_request, detect_dialect_from_add, encode_message
from engine.counters import Counters
from engine.errors import ProtocolError, RequestRefused
from engine.handshake import engine_identity
from engine.intake import LOOK_AGAIN_MS, Intake
from engine.messages import (
    AbortIds,
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    EngineZmqAddresses,
    StartDPWave,
    UtilityCall,
)
from engine.queues import (
    Abort,
    AbortsQueue,
    Add,
    Call,
    Emit,
    InputQueue,
    OutputQueue,
    Refuse,
    RefuseCall,
    ThreadDied,
)
from engine.scheduler.request import Request
from engine.time_slice import shorten_time_slice

__all__ = ["Counters", "InputThread"]

logger = logging.getLogger("engine")

NAME = "engine-in"
COORDINATOR = -1
BURST = 64
"""Messages taken from one socket before the others get their turn."""
LOG_EVERY_S = 1.0

Socket = zmq.Socket[bytes]
Admit = Callable[[EngineCoreRequest, int], Request]
Instant = Callable[[UtilityCall], EngineCoreOutputs | None]
SendAtOnce = Callable[[int, EngineCoreOutputs], bool]


class InputThread(threading.Thread):
    """start(), `started` once every client has the ready response (and the coordinator said READY), stop()."""

    def __init__(
        self,
        *,
        context: zmq.Context[Socket],
        addresses: EngineZmqAddresses,
        engine_index: int,
        ready_response: EngineCoreReadyResponse,
        input_queue: InputQueue,
        aborts_queue: AbortsQueue,
        output_queue: OutputQueue,
        admit: Admit,
        instant: Instant,
        send_at_once: SendAtOnce,
        is_loop_waiting: Callable[[], bool],
        dialects: dict[int, Dialect],
        counters: Counters,
    ) -> None:
        super().__init__(name=NAME, daemon=True)
        self.started = threading.Event()
        self._context = context
        self._addresses = addresses
        self._engine_index = engine_index
        self._ready_response = ready_response
        self._stop_fd: int | None = os.eventfd(0)
        self._is_loop_waiting = is_loop_waiting
        self._busy_poll = BusyPoll()
        self._receiver = Receiver(
            num_clients=len(addresses.inputs),
            input_queue=input_queue,
            aborts_queue=aborts_queue,
            output_queue=output_queue,
            admit=admit,
            instant=instant,
            send_at_once=send_at_once,
            busy_poll=self._busy_poll,
            dialects=dialects,
            counters=counters,
        )
        self._input_queue = input_queue
        self._intake = Intake(input_queue)

    def wait_connected(self, timeout_s: float) -> bool:
        """True once `started`; False at the timeout or when the thread is dead. Blocks."""
        end = time.monotonic() + timeout_s
        while not self.started.wait(min(0.1, max(0.0, end - time.monotonic()))):
            if time.monotonic() >= end or not self.is_alive():
                return self.started.is_set()
        return True

    def stop(self, timeout_s: float) -> bool:
        """Ends the thread. False when it is still alive after the timeout. Safe to call twice, from one thread."""
        if self._stop_fd is None:
            return True
        os.eventfd_write(self._stop_fd, 1)
        if self.ident is not None:
            self.join(timeout_s)
        if self.is_alive():
            return False
        os.close(self._stop_fd)
        self._stop_fd = None
        return True

    def run(self) -> None:
        shorten_time_slice()
        try:
            with ExitStack() as stack:
                self.process_input_sockets(stack)
        except BaseException as error:
            logger.exception("%s died", NAME)
            self._input_queue.put(ThreadDied(NAME, f"{type(error).__name__}: {error}"))

    def process_input_sockets(self, stack: ExitStack) -> None:
        """Connects, greets, then turns frames into messages until stop()."""
        poller = zmq.Poller()
        poller.register(self._stop_fd, zmq.POLLIN)
        sources: dict[object, int] = {}
        for client, address in enumerate(self._addresses.inputs):
            sources[self._open(stack, zmq.DEALER, address, encode_message(self._ready_response))] = client
        if self._addresses.coordinator_input is not None:
            sources[self._open(stack, zmq.XSUB, self._addresses.coordinator_input, b"\x01")] = COORDINATOR
        else:
            self.started.set()
        for socket in sources:
            poller.register(socket, zmq.POLLIN)
        held: list[Socket] = []
        """Not read: too much of theirs waits for the loop."""
        while True:
            for source, _ in self._wait(poller, has_held=bool(held)):
                if source == self._stop_fd:
                    return
                if isinstance(source, zmq.Socket) and self._take_all(source, sources[source]):
                    poller.unregister(source)
                    held.append(source)
            for socket in [socket for socket in held if self._intake.may_read(sources[socket])]:
                held.remove(socket)
                poller.register(socket, zmq.POLLIN)

    def _wait(self, poller: zmq.Poller, *, has_held: bool) -> list[tuple[object, int]]:
        """Blocks until something can be read. Awake between quick calls, yet never beside a forward pass: that would
        take a core from the computing threads."""
        while not has_held and time.monotonic() < self._busy_poll.until and self._is_loop_waiting():
            os.sched_yield()  # who wakes on this core runs first; Linux returns at once when nobody does
            if found := poller.poll(0):
                return found
        return poller.poll(LOOK_AGAIN_MS if has_held else None)

    def _open(self, stack: ExitStack, kind: int, address: str, greeting: bytes) -> Socket:
        socket = stack.enter_context(self._context.socket(kind))
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, limits.RECEIVE_HIGH_WATER_MARK)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, limits.MAX_FRAME_BYTES)
        if kind == zmq.DEALER:
            socket.setsockopt(zmq.IDENTITY, engine_identity(self._engine_index))
        socket.connect(address)
        socket.send(greeting, zmq.NOBLOCK)
        return socket

    def _take_all(self, socket: Socket, client: int) -> bool:
        """True when the rest is to stay in the socket for now."""
        for frames in _burst(socket):
            if client == COORDINATOR and not self.started.is_set() and frames == [b"READY"]:
                self.started.set()
                continue
            self._intake.note(client, frames)
            self._receiver.receive(frames, client)
            if not self._intake.may_read(client):
                return True
        return False


def _burst(socket: Socket) -> Iterator[list[bytes]]:
    for _ in range(BURST):
        try:
            yield socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return


class Receiver:
    """One message at a time: decode -> admit -> queue, inside an error boundary of its own. Thread engine-in only."""

    def __init__(
        self,
        *,
        num_clients: int,
        input_queue: InputQueue,
        aborts_queue: AbortsQueue,
        output_queue: OutputQueue,
        admit: Admit,
        instant: Instant,
        send_at_once: SendAtOnce,
        busy_poll: BusyPoll,
        dialects: dict[int, Dialect],
        counters: Counters,
    ) -> None:
        self._num_clients = num_clients
        self._input_queue = input_queue
        self._aborts_queue = aborts_queue
        self._output_queue = output_queue
        self._admit = admit
        self._instant = instant
        self._send_at_once = send_at_once
        self._busy_poll = busy_poll
        self._dialects = dialects
        self._counters = counters
        self._seq = 0
        self._log_at = 0.0
        self._unlogged = 0

    def receive(self, frames: list[bytes], client: int) -> None:
        """`client`: whose socket it came on, -1 for the coordinator. Raises nothing that a peer could cause."""
        self._busy_poll.on_message()
        try:
            message = decode_request(frames)
        except ProtocolError as error:
            self._reject(error, frames, client)
            return
        except (Exception, RecursionError, MemoryError) as error:
            self._reject(ProtocolError(f"cannot be read: {type(error).__name__}"), frames, client)
            return
        self._seq += 1
        match message:
            case EngineCoreRequest():
                self._add(message, frames[1], client)
            case AbortIds(request_ids=ids):
                self._aborts_queue.put(Abort(ids, self._seq))
                self._input_queue.put(Abort(ids, self._seq))
            case UtilityCall():
                self._call(message, frames, client)
            case StartDPWave():
                self._reject(ProtocolError("START_DP_WAVE: this engine has no data parallel peers"), frames, client)

    def _add(self, wire: EngineCoreRequest, body: bytes, client: int) -> None:
        if not 0 <= wire.client_index < self._num_clients:
            text = f"client_index {wire.client_index} is not in 0 .. {self._num_clients - 1}"
            self._input_queue.put(Refuse(wire.request_id, max(client, 0), text))
            return
        if wire.client_index not in self._dialects:
            dialect = detect_dialect_from_add(body)
            if dialect is not Dialect.UNKNOWN:
                self._dialects[wire.client_index] = dialect
        try:
            request = self._admit(wire, self._seq)
        except RequestRefused as error:
            self._input_queue.put(Refuse(wire.request_id, wire.client_index, str(error)))
        except (Exception, RecursionError, MemoryError) as error:
            logger.error("admission failed\n%s", _places(error))
            text = f"admission failed: {type(error).__name__}"
            self._input_queue.put(Refuse(wire.request_id, wire.client_index, text))
        else:
            request.wire_bytes = len(body)
            self._input_queue.put(Add(request, self._seq, wire.abort_immediately))

    def _call(self, call: UtilityCall, frames: list[bytes], client: int) -> None:
        if not 0 <= call.client_index < self._num_clients:
            text = f"{call.method}: client index {call.client_index} is not in 0 .. {self._num_clients - 1}"
            self._reject(ProtocolError(text, call_id=call.call_id, client_index=-1), frames, client)
            return
        came_at = time.monotonic()
        try:
            outputs = self._instant(call)
        except (Exception, RecursionError, MemoryError) as error:
            logger.error("utility failed\n%s", _places(error))
            text = f"{call.method} failed: {type(error).__name__}: {error}"
            self._input_queue.put(RefuseCall(call.call_id, call.client_index, text))
            return
        if outputs is None:
            self._input_queue.put(Call(call))
            return
        outputs.timestamp = outputs.timestamp or time.monotonic()
        if self._send_at_once(call.client_index, outputs):
            self._busy_poll.on_answer(came_at, time.monotonic())
        else:
            self._output_queue.put(Emit(call.client_index, outputs))

    def _reject(self, error: ProtocolError, frames: list[bytes], client: int) -> None:
        """Counted, answered when it has an id, logged without its content."""
        self._counters.rejected_messages += 1
        named = error.client_index if 0 <= error.client_index < self._num_clients else max(client, 0)
        if error.request_id:
            self._input_queue.put(Refuse(error.request_id, named, str(error)))
        elif error.call_id is not None:
            self._input_queue.put(RefuseCall(error.call_id, named, str(error)))
        self._log(frames, client, error)

    def _log(self, frames: list[bytes], client: int, error: ProtocolError) -> None:
        now = time.monotonic()
        if now < self._log_at:
            self._unlogged += 1
            return
        more = f"; {self._unlogged} more before it" if self._unlogged else ""
        is_answered = bool(error.request_id) or error.call_id is not None
        why = "answered by its id" if is_answered else str(error)[:200]
        size = sum(map(len, frames))
        logger.warning("client %d: %d frames of %d bytes rejected: %s%s", client, len(frames), size, why, more)
        self._log_at, self._unlogged = now + LOG_EVERY_S, 0


def _places(error: BaseException) -> str:
    """Where it happened, without the message: that may hold what the client sent."""
    return "".join(traceback.format_tb(error.__traceback__)) + type(error).__name__
