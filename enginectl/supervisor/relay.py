"""The engine's frontend: handshake, seats, and a look at everything that passes.

Frames come in from the engine and go out to it. Owns the handshake ROUTER and one input/output pair per seat, for the
life of the supervisor: an engine that is restarted finds the same addresses. A seat is one entry of INIT; the last one
is our own, those before it are for clients of an external frontend, whose frames pass untouched and are read on the
side. What cannot be read is counted and dropped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import zmq

from engine.codec import (
    Dialect,
    decode_outputs,
    decode_ready_response,
    decode_status,
    detect_dialect_from_ready,
    encode_message,
    encode_request,
)
from engine.errors import ProtocolError
from engine.messages import (
    AbortIds,
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    EngineDead,
    EngineHandshakeMetadata,
    EngineZmqAddresses,
    UtilityCall,
)
from enginectl.errors import EngineDied
from enginectl.supervisor.loop import Loop

MAX_PER_TURN = 64
"""Messages taken from one socket before the others get their turn."""
HANDSHAKE_BYTES = 1024**2
OUTPUT_BYTES = 2**30


class RelayOwner(Protocol):
    """Who hears what the relay sees."""

    def on_hello(self) -> None: ...

    def on_ready(self, response: EngineCoreReadyResponse) -> None: ...

    def on_outputs(self, seat: Seat, message: EngineCoreOutputs) -> None: ...

    def on_dead_notice(self) -> None: ...

    def on_unreadable(self, where: str, error: str) -> None: ...


class Seat:
    """One client's place: its index in INIT, the ROUTER the engine takes requests from, the PULL it answers on."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], index: int, base: Path, *, is_own: bool) -> None:
        self.index = index
        self.is_own = is_own
        names = ("in.sock", "out.sock") if is_own else (f"in{index}.sock", f"out{index}.sock")
        self.input_path, self.output_path = base / names[0], base / names[1]
        self.input = _router(context, OUTPUT_BYTES)
        self.output = context.socket(zmq.PULL)
        self.output.setsockopt(zmq.LINGER, 0)
        self.output.setsockopt(zmq.RCVHWM, 0)
        self.output.setsockopt(zmq.MAXMSGSIZE, OUTPUT_BYTES)

    def bind(self) -> None:
        """Binds what has no socket file: at first, and after the runtime directory was removed."""
        for sock, path in ((self.input, self.input_path), (self.output, self.output_path)):
            if not os.path.lexists(path):
                sock.bind(f"ipc://{path}")

    def close(self) -> None:
        self.input.close(0)
        self.output.close(0)


class Relay:
    """Main thread only. Never blocks: the queues to the engine have no limit, as the protocol wants it."""

    def __init__(
        self, loop: Loop, context: zmq.Context[zmq.Socket[bytes]], base: Path, owner: RelayOwner, engine_index: int = 0
    ) -> None:
        self.base = base
        self.identity = engine_index.to_bytes(2, "little")
        self.dialect = Dialect.UNKNOWN
        self.response: EngineCoreReadyResponse | None = None
        self._loop = loop
        self._owner = owner
        self._context = context
        self._said_hello = self._said_ready = self._is_up = False
        self.handshake_path = base / "hs.sock"
        self.handshake = _router(context, HANDSHAKE_BYTES)
        self.seats = [Seat(context, 0, base, is_own=True)]
        loop.watch(self.handshake, self._read_handshake)
        for seat in self.seats:
            self._watch(seat)

    @property
    def own(self) -> Seat:
        return self.seats[-1]

    @property
    def handshake_address(self) -> str:
        return f"ipc://{self.handshake_path}"

    def _watch(self, seat: Seat) -> None:
        self._loop.watch(seat.input, lambda: self._read_input(seat))
        self._loop.watch(seat.output, lambda: self._read_output(seat))

    def prepare(self) -> None:
        """Before each spawn: sockets are bound, nothing of an earlier engine is left in them."""
        self.dialect, self.response = Dialect.UNKNOWN, None
        self._said_hello = self._said_ready = self._is_up = False
        for seat in self.seats:
            seat.bind()
            _discard(seat.output)
            _discard(seat.input)
        if not os.path.lexists(self.handshake_path):
            self.handshake.bind(self.handshake_address)
        _discard(self.handshake)

    def engine_gone(self) -> None:
        """Reads what the engine still sent, then takes nothing more."""
        for seat in self.seats:
            self._read_output(seat, limit=1_000_000)
        self._is_up = False

    def close(self) -> None:
        self._loop.unwatch(self.handshake)
        self.handshake.close(0)
        for seat in self.seats:
            self._loop.unwatch(seat.input)
            self._loop.unwatch(seat.output)
            seat.close()

    # ------------------------------------------------------------ from the engine

    def _read_handshake(self) -> None:
        frames = _receive(self.handshake)
        if frames is None:
            return
        try:
            status = decode_status(frames[-1])
        except ProtocolError as error:
            self._owner.on_unreadable("handshake", str(error))
            return
        if frames[0] != self.identity:
            self._owner.on_unreadable("handshake", f"identity {frames[0].hex()} is not engine {self.identity.hex()}")
        elif status.status == "HELLO" and not self._said_hello:
            self._said_hello = True
            self._send_init()
            self._owner.on_hello()
        elif status.status == "READY" and self._said_hello:
            self._said_ready = True
            self._maybe_up()
        else:
            self._owner.on_unreadable("handshake", f"status {status.status[:40]!r} out of turn")

    def _send_init(self) -> None:
        addresses = EngineZmqAddresses(
            inputs=[f"ipc://{seat.input_path}" for seat in self.seats],
            outputs=[f"ipc://{seat.output_path}" for seat in self.seats],
        )
        init = EngineHandshakeMetadata(addresses, {"data_parallel_size": 1, "data_parallel_master_port": 0,
                                                   "data_parallel_master_ip": "127.0.0.1"})  # fmt: skip
        try:
            self.handshake.send_multipart([self.identity, encode_message(init)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            self._owner.on_unreadable("handshake", f"INIT not delivered: {error}")

    def _read_input(self, seat: Seat) -> None:
        """The engine sends one thing here: its ready response."""
        frames = _receive(seat.input)
        if frames is None or frames[0] != self.identity:
            return
        try:
            response = decode_ready_response(frames[-1])
        except ProtocolError as error:
            self._owner.on_unreadable("input", str(error))
            return
        if seat.is_own:
            self.response = response
            self.dialect = detect_dialect_from_ready(response.vllm_version)
            self._maybe_up()

    def _maybe_up(self) -> None:
        """READY and the ready response come in either order."""
        if self._said_ready and self.response is not None and not self._is_up:
            self._is_up = True
            self._owner.on_ready(self.response)

    def _read_output(self, seat: Seat, limit: int = MAX_PER_TURN) -> None:
        for _ in range(limit):
            frames = _receive(seat.output)
            if frames is None:
                return
            try:
                message = decode_outputs(frames, self.dialect)
            except ProtocolError as error:
                self._owner.on_unreadable("output", str(error))
                continue
            if isinstance(message, EngineDead):
                self._owner.on_dead_notice()
            else:
                self._owner.on_outputs(seat, message)

    # ------------------------------------------------------------ to the engine

    def add(self, request: EngineCoreRequest) -> None:
        """From our own seat. Raises EngineDied when no engine is connected."""
        self._send(encode_request(request, self.dialect))

    def abort(self, ids: list[str]) -> None:
        self._send(encode_request(AbortIds(ids), self.dialect))

    def utility(self, call: UtilityCall) -> None:
        self._send(encode_request(call, self.dialect))

    def _send(self, frames: list[bytes]) -> None:
        try:
            self.own.input.send_multipart([self.identity, *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            raise EngineDied("the engine is not connected", cause=str(error)) from None


def _router(context: zmq.Context[zmq.Socket[bytes]], max_bytes: int) -> zmq.Socket[bytes]:
    sock = context.socket(zmq.ROUTER)
    for option, value in (
        (zmq.LINGER, 0), (zmq.SNDHWM, 0), (zmq.RCVHWM, 0), (zmq.MAXMSGSIZE, max_bytes),
        (zmq.ROUTER_MANDATORY, 1), (zmq.ROUTER_HANDOVER, 1),
    ):  # fmt: skip
        sock.setsockopt(option, value)
    return sock


def _receive(sock: zmq.Socket[bytes]) -> list[bytes] | None:
    try:
        return sock.recv_multipart(zmq.NOBLOCK)
    except zmq.ZMQError:
        return None


def _discard(sock: zmq.Socket[bytes]) -> None:
    while _receive(sock) is not None:
        pass
