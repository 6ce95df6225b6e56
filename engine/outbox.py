"""One client's way out: a PUSH socket, what waits before it, and what zmq still reads from our memory.

Encoded frames enter; they leave in order, whole, without blocking. Owned by engine-out; close() ends it. send_at_once()
alone is engine-in's: a zmq socket may pass from thread to thread when a full memory fence lies between, as a lock is.
Frames under zmq's copy threshold are copied by send and free at once. Longer ones are read from our memory, each with
a tracker of its own: the tracker of a multipart send covers its last frame only."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

import zmq

from engine import limits

SEND_HIGH_WATER_MARK = 128
"""Messages that libzmq holds for one client; more wait here, where their bytes are counted."""
MESSAGE_OVERHEAD_BYTES = 256
"""What a waiting message costs beyond its frames."""

Frames = Sequence[bytes | bytearray]


class BufferPool:
    """Buffers that nobody reads from any more, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._free: list[bytearray] = []

    def take(self) -> bytearray:
        return self._free.pop() if self._free else bytearray()

    def give(self, frame: bytes | bytearray) -> None:
        """Takes a body back; anything else, and what is too much, is left to the garbage collector."""
        if isinstance(frame, bytearray) and len(self._free) < self._most:
            self._free.append(frame)

    def __len__(self) -> int:
        return len(self._free)


class _InFlight:
    """A message whose long frames zmq reads in place."""

    __slots__ = ("body", "num_bytes", "trackers")

    def __init__(self, body: bytes | bytearray, trackers: list[zmq.MessageTracker], num_bytes: int) -> None:
        self.body = body
        self.trackers = trackers
        self.num_bytes = num_bytes

    @property
    def is_done(self) -> bool:
        return all(tracker.done for tracker in self.trackers)


class Outbox:
    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], address: str, pool: BufferPool, byte_budget: int
    ) -> None:
        self.socket: zmq.Socket[bytes] = context.socket(zmq.PUSH)
        self.socket.setsockopt(zmq.IPV6, 1)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, SEND_HIGH_WATER_MARK)
        self.socket.setsockopt(zmq.MAXMSGSIZE, limits.MAX_FRAME_BYTES)
        self.socket.connect(address)
        self.held_bytes = 0
        """Waiting here, or read in place by zmq."""
        self.is_dropping = False
        """Over budget: nothing is taken until all that is held has gone out."""
        self._lock = threading.Lock()
        """Of the socket: held for one send."""
        self._is_over = False
        """What is held is the last that goes out."""
        self._pool = pool
        self._byte_budget = byte_budget
        self._pending: deque[Frames] = deque()
        self._in_flight: deque[_InFlight] = deque()

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    @property
    def is_settled(self) -> bool:
        """Nothing is held and everything is taken: it needs no attention until the next message."""
        return not (self._pending or self._in_flight or self.is_dropping)

    def send(self, frames: Frames) -> bool:
        """Sends, or keeps for later. False when that would go over the budget: the message is dropped, and so is
        everything after it until the client has caught up. `frames[0]` returns to the pool when it is free."""
        self._reclaim()
        # What zmq is just sending is not left unread, however long it is.
        waiting = self.held_bytes - (self._in_flight[0].num_bytes if self._in_flight else 0)
        if waiting and waiting + _size(frames) > self._byte_budget:
            self.is_dropping = True
            self._pool.give(frames[0])
            return False
        if self._pending or not self._try_send(frames):
            self.append(frames)
        return True

    def send_at_once(self, frames: Frames) -> bool:
        """Sends a short message, from a thread that is not the owner. False, and nothing is sent, when the owner is at
        the socket, when anything waits before it, after the last message, and when zmq takes no more."""
        if sum(map(len, frames)) >= zmq.COPY_THRESHOLD:  # its bytes are to be counted
            return False
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._is_over or not self.is_settled or self.socket.closed:
                return False
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError:  # the owner tries again, and meets what is more than a full socket
            return False
        finally:
            self._lock.release()
        return True

    def append(self, frames: Frames) -> None:
        """Keeps for later, whatever the budget says. A short body is copied so that its buffer is free at once."""
        if isinstance(frames[0], bytearray) and len(frames[0]) < zmq.COPY_THRESHOLD:
            kept: Frames = [bytes(frames[0]), *frames[1:]]
            self._pool.give(frames[0])
        else:
            kept = frames
        self._pending.append(kept)
        self.held_bytes += _size(kept)

    def append_last(self, frames: Frames) -> None:
        with self._lock:
            self._is_over = True
        self.append(frames)

    def flush(self) -> bool:
        """Sends what waits and takes back what zmq has finished with. True when anything moved. Never blocks."""
        has_moved = self._reclaim()
        while self._pending and self._try_send(self._pending[0]):
            self.held_bytes -= _size(self._pending.popleft())
            has_moved = True
        if not (self._pending or self._in_flight):
            self.is_dropping = False
        return has_moved

    def close(self, linger_s: float) -> None:
        """Safe to call twice: the first linger time holds."""
        with self._lock:
            if not self.socket.closed:
                self.socket.close(linger=int(linger_s * 1000))

    def _try_send(self, frames: Frames) -> bool:
        """All frames of a message go, or none."""
        parts = [zmq.Frame(f, track=True, copy=False) if len(f) >= zmq.COPY_THRESHOLD else f for f in frames]
        try:
            with self._lock:
                self.socket.send_multipart(parts, zmq.NOBLOCK, copy=False, track=True)
        except zmq.Again:
            return False
        trackers = [part.tracker for part in parts if isinstance(part, zmq.Frame) and part.tracker is not None]
        if not trackers:
            self._pool.give(frames[0])
            return True
        size = _size(frames)
        self.held_bytes += size
        self._in_flight.append(_InFlight(frames[0], trackers, size))
        return True

    def _reclaim(self) -> bool:
        has_moved = False
        while self._in_flight and self._in_flight[0].is_done:
            done = self._in_flight.popleft()
            self.held_bytes -= done.num_bytes
            self._pool.give(done.body)
            has_moved = True
        return has_moved


def _size(frames: Frames) -> int:
    return MESSAGE_OVERHEAD_BYTES + sum(map(len, frames))
