"""A connecting socket whose connections are watched: what its monitor reports becomes events for one owner.

Owns the socket and its monitor. Main thread only. Dies by close()."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import zmq
from zmq.utils.monitor import recv_monitor_message

from enginectl.supervisor.loop import Loop

UP = zmq.EVENT_HANDSHAKE_SUCCEEDED
NOT_ZMQ = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
DOWN = zmq.EVENT_DISCONNECTED | NOT_ZMQ


def is_own_end(fd: int) -> bool:
    """Whether a TCP connection has this very socket at both ends: who tries again and again to reach a port of this
    machine that nobody listens on is given that port as its own one day, and the kernel connects it with itself."""
    try:
        with open(os.dup(fd), "rb", buffering=0) as held:
            seen = socket.socket(fileno=held.fileno())
            try:
                return seen.family in (socket.AF_INET, socket.AF_INET6) and seen.getsockname() == seen.getpeername()
            finally:
                seen.detach()
    except OSError:
        return False  # gone already, or its number is another file's


class Watched:
    """A socket and its monitor. Of a connection with itself nothing is told: its port is still nobody's."""

    def __init__(self, loop: Loop, sock: zmq.Socket[bytes], on_event: Callable[[int], None]) -> None:
        self.socket = sock
        self._loop = loop
        self._on_event = on_event
        self._is_own_end = False
        self._monitor: zmq.Socket[bytes] | None = sock.get_monitor_socket(zmq.EVENT_CONNECTED | UP | DOWN)
        loop.watch(self._monitor, self._read)

    def _read(self) -> None:
        while self._monitor is not None and self._monitor.poll(0):
            message = recv_monitor_message(self._monitor)
            event = int(message["event"])
            if event == zmq.EVENT_CONNECTED:
                self._is_own_end = is_own_end(int(message["value"]))
            elif not self._is_own_end:
                self._on_event(event)

    def close(self, linger_ms: int = 0) -> None:
        if self._monitor is None:
            return
        self._loop.unwatch(self._monitor)
        self._loop.unwatch(self.socket)
        self.socket.disable_monitor()
        self._monitor.close(0)
        self._monitor = None
        self.socket.close(linger_ms)
