"""The engine's side of HELLO, INIT, READY: an address enters, the addresses of all clients leave.

Owns its context, the DEALER and its monitor; used by the main thread during start, closed by ready() or close().
One HELLO per connection: only a connection that the monitor saw break before INIT gives way to another; one that broke
after INIT ends the start."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import zmq
from zmq.utils.monitor import recv_monitor_message

from engine import limits
from engine.codec import decode_init, encode_message
from engine.errors import DeadlineError, EngineStartError, ProtocolError
from engine.messages import EngineHandshakeMetadata, EngineZmqAddresses, HandshakeStatus

logger = logging.getLogger("engine")

REPORT_EVERY_S = 10.0
RETRY_S = 0.2
CONNECT_S = 5.0
"""How long one attempt to connect may take before the next one."""
LOOK_UP_MS = 200
"""How often a wait looks at `should_stop`."""
READY_LINGER_MS = 2000
_BROKEN = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_WATCHED = _BROKEN | zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED


def engine_identity(engine_index: int) -> bytes:
    """What every ROUTER knows this engine by. Raises ProtocolError when the index does not fit in two bytes."""
    if not 0 <= engine_index < 2**16:
        raise ProtocolError(f"engine index {engine_index} is not in 0 .. 65535")
    return engine_index.to_bytes(2, "little")


class Handshake:
    """greet(), build the engine, ready(). After greet() the answer is in `addresses` and `metadata`."""

    def __init__(
        self,
        address: str,
        engine_index: int = 0,
        *,
        is_local: bool = False,
        deadline_s: float = limits.INIT_DEADLINE_S,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        self.address = address
        self.is_local = is_local
        self.deadline_s = deadline_s
        self.metadata: EngineHandshakeMetadata | None = None
        self._identity = engine_identity(engine_index)
        self._should_stop = should_stop or (lambda: False)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._opened_at = 0.0
        self._is_connected = False
        """This socket; the two below: any before it too."""
        self._has_connected = False
        self._has_spoken = False
        """The peer speaks ZMQ."""

    @property
    def addresses(self) -> EngineZmqAddresses:
        if self.metadata is None:
            raise ProtocolError("INIT has not come yet")
        return self.metadata.addresses

    def greet(self) -> EngineHandshakeMetadata:
        """Sends HELLO and waits for INIT. Raises DeadlineError, also when told to stop, or ProtocolError; then it is
        closed. Blocks."""
        try:
            self.metadata = self._exchange()
        except BaseException:
            self.close()
            raise
        return self.metadata

    def _exchange(self) -> EngineHandshakeMetadata:
        began = time.monotonic()
        report_at = began + REPORT_EVERY_S
        self._open()
        while True:
            frames = self._next_event()
            if frames is not None:
                return self._read_init(frames)
            now = time.monotonic()
            if self._should_stop():
                raise DeadlineError(f"told to stop while waiting for INIT from {self.address}")
            if now - began > self.deadline_s:
                raise DeadlineError(f"no INIT from {self.address} within {self.deadline_s:.0f} s: {self._state()}")
            if now > report_at:
                report_at += REPORT_EVERY_S
                logger.info("waiting for INIT from %s, %.0f s so far: %s", self.address, now - began, self._state())

    def check_open(self) -> None:
        """Raises EngineStartError when the connection broke after INIT. Another one is no way out: whoever listens
        there now may not be the frontend that said INIT, and a frontend goes down at READY from an engine that it
        does not know, or at a second HELLO from one that it does."""
        while self._monitor is not None and self._monitor.poll(0):
            if int(recv_monitor_message(self._monitor)["event"]) & _BROKEN:
                raise EngineStartError(
                    f"the handshake at {self.address} closed before this engine was ready: READY would reach nobody",
                    phase="handshake",
                    cause="the frontend ended or gave up, or what lies in between cut the connection",
                )

    def ready(self) -> None:
        """Tells the frontend that the engine serves, and closes the socket. Blocks 2 s at most. Raises
        EngineStartError when there is nobody to tell."""
        if self._socket is None:
            raise ProtocolError("READY before HELLO")
        self.check_open()
        self._socket.send(encode_message(self._status("READY")), zmq.NOBLOCK)
        self._close_socket(READY_LINGER_MS)
        self._context.term()

    def close(self) -> None:
        """Gives everything back. Safe to call twice."""
        self._close_socket(0)
        self._context.destroy(linger=0)

    def _status(self, status: str) -> HandshakeStatus:
        return HandshakeStatus(status, local=self.is_local, headless=not self.is_local)

    def _open(self) -> None:
        socket = self._context.socket(zmq.DEALER)
        self._socket = socket
        socket.setsockopt(zmq.IDENTITY, self._identity)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, -1)  # a socket that reconnects by itself could say HELLO once more
        socket.setsockopt(zmq.MAXMSGSIZE, limits.MAX_READY_RESPONSE_BYTES)
        self._monitor = socket.get_monitor_socket(_WATCHED)
        try:
            socket.connect(self.address)
        except zmq.ZMQError as error:
            raise ProtocolError(f"cannot connect to the handshake address {self.address!r}: {error}") from None
        socket.send(encode_message(self._status("HELLO")), zmq.NOBLOCK)
        self._opened_at, self._is_connected = time.monotonic(), False

    def _reopen(self) -> None:
        self._close_socket(0)
        time.sleep(RETRY_S)  # a peer that cuts every connection must not be hammered
        self._open()

    def _next_event(self) -> list[bytes] | None:
        """The frames of an answer, or None after a short while or a change of the connection."""
        if self._socket is None or self._monitor is None:
            raise ProtocolError("the handshake is closed")
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        ready = dict(poller.poll(LOOK_UP_MS))
        if self._socket in ready:
            return self._socket.recv_multipart()
        if self._monitor in ready:
            self._note(int(recv_monitor_message(self._monitor)["event"]))
        elif not self._is_connected and time.monotonic() - self._opened_at > CONNECT_S:
            self._reopen()
        return None

    def _note(self, event: int) -> None:
        if event & zmq.EVENT_CONNECTED:
            self._is_connected = self._has_connected = True
        elif event & zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._has_spoken = True
        elif event & _BROKEN:
            self._reopen()

    def _state(self) -> str:
        if self._has_spoken:
            return "connected, but no answer to HELLO"
        if self._has_connected:
            return "connected, but no answer to HELLO; does something else listen there?"
        return "nothing listens there yet"

    def _read_init(self, frames: list[bytes]) -> EngineHandshakeMetadata:
        if len(frames) != 1:
            raise ProtocolError(f"INIT from {self.address} has {len(frames)} frames, not one")
        try:
            return decode_init(frames[0])
        except ProtocolError as error:
            raise ProtocolError(f"from {self.address}: {error}") from None

    def _close_socket(self, linger_ms: int) -> None:
        if self._socket is not None:
            self._socket.disable_monitor()
            self._socket.close(linger=linger_ms)
            self._socket = None
        if self._monitor is not None:
            self._monitor.close(linger=0)
            self._monitor = None
