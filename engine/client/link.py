"""The connection of one client to its own engine: both sockets, one receiver thread, the process.

Enters: messages to send, from any thread; frames from the engine. Leaves: EngineCoreOutputs to `deliver`, and one
EngineDeadError to `fail`. Owned by an MPClient. Dies by close(), within 3 s whatever the engine does."""

from __future__ import annotations

import atexit
import multiprocessing.util  # noqa: F401  its own exit handler waits for children: ours, registered later, runs first
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import zmq

from engine.client.book import Entry
from engine.client.start import Socket, StartedEngine
from engine.codec import ToEngine, decode_outputs, encode_request
from engine.errors import EngineDeadError
from engine.messages import AbortIds, EngineCoreOutputs, EngineDead

TERM_WAIT_S = 1.5
JOIN_S = 0.5
LAST_WORDS_MS = 200
"""After the process has ended, outputs still arrive from the kernel's buffers; so much silence means that all have."""
BURST = 256
"""Messages read in one turn before the other descriptors are looked at."""


class Link:
    """`deliver` and `fail` are called on the receiver thread and must not block. `forget` tells whether a request that
    nobody reads any more is to be aborted."""

    def __init__(
        self,
        started: StartedEngine,
        deliver: Callable[[EngineCoreOutputs], None],
        fail: Callable[[EngineDeadError], None],
        forget: Callable[[Entry], bool],
    ) -> None:
        self.started = started
        self.process = started.process
        self._deliver = deliver
        self._fail = fail
        self._forget = forget
        # Re-entrant: a garbage collection inside a send may run the close of this same link.
        self._send_lock = threading.RLock()
        self._close_lock = threading.RLock()
        self._closing = False
        self._closed = False
        self._owner_pid = os.getpid()
        self._stop_receiving = False
        self._unwanted: deque[Entry] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="engine-client", daemon=True)
        self._thread.start()
        _links.add(self)

    # ------------------------------------------------------------ any thread

    @property
    def is_closed(self) -> bool:
        return self._closed

    def send(self, message: ToEngine) -> None:
        """Never blocks: without a high-water mark the message is queued. Raises EngineDeadError."""
        frames = [self.started.identity, *encode_request(message)]
        with self._send_lock:
            if self._closed:
                raise EngineDeadError("this client is closed")
            try:
                self.started.input_socket.send_multipart(frames, zmq.NOBLOCK)
            except zmq.ZMQError as error:
                raise EngineDeadError(f"the engine listens no more ({error}); {self.process.describe_end()}") from None

    def discard(self, entry: Entry) -> None:
        """An ABORT, sent by the receiver thread: takes no lock, so a finalizer may call it at any moment."""
        self._unwanted.append(entry)
        self._wake()

    def close(self, term_wait_s: float = TERM_WAIT_S) -> None:
        """TERM, KILL, then thread, sockets, directory. At most 3 s; once; other callers wait for the first."""
        if os.getpid() != self._owner_pid:
            return  # a fork of our process: nothing of this is its own
        with self._close_lock:
            if self._closed or self._closing:
                return
            self._closing = True
            self.process.stop(term_wait_s)
            self._stop_thread()
            with self._send_lock:
                self._closed = True
                self.started.close()
            self.process.close()
            wake_fd, self._wake_fd = self._wake_fd, -1
            os.close(wake_fd)
            self._fail(EngineDeadError("this client is closed"))
            _links.discard(self)

    def _stop_thread(self) -> None:
        self._stop_receiving = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)

    def _wake(self) -> None:
        with suppress(OSError, ValueError):  # closed meanwhile
            os.eventfd_write(self._wake_fd, 1)

    # ------------------------------------------------------------ the receiver thread

    def _run(self) -> None:
        outputs = self.started.output_socket
        poller = zmq.Poller()
        for watched in (outputs, self._wake_fd, self.process.pidfd):
            poller.register(watched, zmq.POLLIN)
        try:
            while self._turn(poller, outputs):
                pass
        except Exception as error:  # whatever it is, nobody may wait for ever
            self._fail(EngineDeadError(f"nothing more is received: {type(error).__name__}: {error}"))

    def _turn(self, poller: zmq.Poller, outputs: Socket) -> bool:
        """False when there is nothing more to expect."""
        events = dict(poller.poll())  # its wake-ups: an output, wake_fd, the end of the process
        if outputs in events and not self._receive(outputs):
            self.process.wait(LAST_WORDS_MS / 1000)  # most often it ends at once, and then its exit status can be told
            self._fail(EngineDeadError(f"the engine said goodbye; {self.process.describe_end()}"))
            return False
        if self._wake_fd in events:
            self._abort_unwanted()
        if self.process.pidfd in events:
            self._take_last_words(outputs)
            return False
        return not self._stop_receiving

    def _receive(self, outputs: Socket) -> bool:
        """False after ENGINE_CORE_DEAD."""
        for _ in range(BURST):
            try:
                frames = outputs.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return True
            message = decode_outputs(frames)
            if isinstance(message, EngineDead):
                return False
            self._deliver(message)
        return True

    def _take_last_words(self, outputs: Socket) -> None:
        while outputs.poll(LAST_WORDS_MS) and self._receive(outputs):
            pass
        self._fail(EngineDeadError(self.process.describe_end()))

    def _abort_unwanted(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)
        wire_ids = []
        while self._unwanted:
            entry = self._unwanted.popleft()
            if self._forget(entry):
                wire_ids.append(entry.wire_id)
        if wire_ids and not self._closing:
            with suppress(EngineDeadError):
                self.send(AbortIds(wire_ids))


_links: weakref.WeakSet[Link] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A program that ends without closing its clients leaves no engine behind."""
    for link in list(_links):
        link.close()
