"""The engine's frontend: handshake, seats, and a look at everything that passes.

Frames come in from the engine and go out to it. Owns the handshake ROUTER and the seats, for the life of the
supervisor: an engine that is restarted finds the same addresses. A seat is one entry of INIT; the last one is our own,
those before it are for clients of an external frontend, whose frames pass untouched (`passing`) and are read on the
side. What cannot be read is counted and dropped."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import zmq

from engine import limits
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
    ENGINE_CORE_DEAD,
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
from enginectl.supervisor.seats import Seat, discard, receive, router

MAX_PER_TURN = 64
"""Messages taken from one socket before the others get their turn."""
PARALLEL_CONFIG: dict[str, int | str | list[int]] = {
    "data_parallel_size": 1,
    "data_parallel_master_port": 0,
    "data_parallel_master_ip": "127.0.0.1",
}


class RelayOwner(Protocol):
    """Who hears what the relay sees."""

    def on_hello(self) -> None: ...

    def on_ready(self, response: EngineCoreReadyResponse) -> None: ...

    def on_outputs(self, seat: Seat, message: EngineCoreOutputs) -> None: ...

    def on_dead_notice(self) -> None: ...

    def on_unreadable(self, where: str, error: str) -> None: ...


class Relay:
    """Main thread only. Never blocks: the queues to the engine have no limit, as the protocol wants it."""

    def __init__(
        self,
        loop: Loop,
        context: zmq.Context[zmq.Socket[bytes]],
        base: Path,
        owner: RelayOwner,
        engine_index: int = 0,
        dialect: Dialect | None = None,
    ) -> None:
        """`dialect`: the engine's, whatever it says of itself."""
        self.base = base
        self.identity = engine_index.to_bytes(2, "little")
        self.dialect = Dialect.UNKNOWN
        """Of the engine, from its ready response."""
        self._forced = dialect
        self.response: EngineCoreReadyResponse | None = None
        self.passing: Callable[[Seat, list[bytes]], None] | None = None
        """Gets each message for an external client, before it is read here."""
        self.parallel_config = dict(PARALLEL_CONFIG)
        self.is_deaf = False
        """What the engine sends is thrown away: somebody decided that its clients shall not hear it."""
        self._loop = loop
        self._owner = owner
        self._context = context
        self._said_hello = self._said_init = self._said_ready = self._is_up = False
        self._may_answer = True
        self._paused: set[int] = set()
        self.handshake_path = base / "hs.sock"
        self._tcp_address = ""
        self._is_tcp = False
        self.handshake = router(context, limits.MAX_READY_RESPONSE_BYTES)
        self.seats = [Seat(context, 0, base, is_own=True)]
        loop.watch(self.handshake, self._read_handshake)
        for seat in self.seats:
            self._watch(seat)

    @property
    def own(self) -> Seat:
        return self.seats[-1]

    @property
    def is_up(self) -> bool:
        return self._is_up

    @property
    def handshake_address(self) -> str:
        return self._tcp_address if self._is_tcp else f"ipc://{self.handshake_path}"

    def _watch(self, seat: Seat) -> None:
        self._loop.watch(seat.input, lambda: self._read_input(seat))
        self._loop.watch(seat.output, lambda: self._read_output(seat))

    def prepare(self, *, tcp: bool = False) -> None:
        """Before each spawn: sockets are bound, nothing of an earlier engine is left in them. `tcp`: the engine can
        only be told a host and a port for its handshake; that is a free one of the loopback interface."""
        self.dialect, self.response, self._is_tcp, self.is_deaf = Dialect.UNKNOWN, None, tcp, False
        self._said_hello = self._said_init = self._said_ready = self._is_up = False
        for seat in self.seats:
            seat.bind()
            seat.forget_engine()
        if tcp and not self._tcp_address:
            self.handshake.bind("tcp://127.0.0.1:*")
            self._tcp_address = self.handshake.getsockopt_string(zmq.LAST_ENDPOINT)
        if not os.path.lexists(self.handshake_path):
            self.handshake.bind(f"ipc://{self.handshake_path}")
        discard(self.handshake)

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

    # ------------------------------------------------------------ seats

    def await_clients(self) -> None:
        """The engine's HELLO stays unanswered until seat_clients."""
        self._may_answer = False

    def seat_clients(self, count: int) -> None:
        """Makes seats for so many external clients, before ours. Only before the first INIT."""
        external = [Seat(self._context, index, self.base, is_own=False) for index in range(count)]
        self.own.index = count
        self.seats = [*external, self.own]
        for seat in external:
            seat.bind()
            self._watch(seat)
        self._may_answer = True
        if self._said_hello and not self._said_init:
            self._send_init()

    def hold_back(self, seat: Seat) -> bool:
        """Reads nothing more from the engine for this client until let_go. False when that was so already."""
        if seat.index in self._paused:
            return False
        self._paused.add(seat.index)
        self._loop.unwatch(seat.output)
        return True

    def let_go(self, seat: Seat) -> None:
        if seat.index in self._paused:
            self._paused.discard(seat.index)
            self._loop.watch(seat.output, lambda: self._read_output(seat))

    # ------------------------------------------------------------ from the engine

    def _read_handshake(self) -> None:
        frames = receive(self.handshake)
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
            self._owner.on_hello()
            if self._may_answer:
                self._send_init()
        elif status.status == "READY" and self._said_init:
            self._said_ready = True
            self._maybe_up()
        else:
            self._owner.on_unreadable("handshake", f"status {status.status[:40]!r} out of turn")

    def _send_init(self) -> None:
        self._said_init = True
        addresses = EngineZmqAddresses(
            inputs=[f"ipc://{seat.input_path}" for seat in self.seats],
            outputs=[f"ipc://{seat.output_path}" for seat in self.seats],
        )
        init = EngineHandshakeMetadata(addresses, self.parallel_config)
        try:
            self.handshake.send_multipart([self.identity, encode_message(init)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            self._owner.on_unreadable("handshake", f"INIT not delivered: {error}")

    def _read_input(self, seat: Seat) -> None:
        """The engine sends one thing here: its ready response."""
        frames = receive(seat.input)
        if frames is None or frames[0] != self.identity:
            return
        try:
            response = decode_ready_response(frames[-1])
        except ProtocolError as error:
            self._owner.on_unreadable("input", str(error))
            return
        seat.has_response, seat.response_frame = True, frames[-1]
        if seat.is_own:
            self.response = response
            self.dialect = self._forced or detect_dialect_from_ready(response.vllm_version)
        self._maybe_up()

    def _maybe_up(self) -> None:
        """READY and the ready responses come in either order; a seat without one cannot be written to yet."""
        everywhere = all(seat.has_response for seat in self.seats)
        if self._said_ready and everywhere and self.response is not None and not self._is_up:
            self._is_up = True
            self._owner.on_ready(self.response)

    def _read_output(self, seat: Seat, limit: int = MAX_PER_TURN) -> None:
        for _ in range(limit):
            if seat.index in self._paused and limit == MAX_PER_TURN:
                return
            frames = receive(seat.output)
            if frames is None:
                return
            if not self.is_deaf:
                self._take(seat, frames)

    def _take(self, seat: Seat, frames: list[bytes]) -> None:
        if self.passing is not None and not seat.is_own and frames != [ENGINE_CORE_DEAD]:
            self.passing(seat, frames)
        try:
            message = decode_outputs(frames, self._dialect_of(seat))
        except ProtocolError as error:
            self._owner.on_unreadable("output", str(error))
            return
        if isinstance(message, EngineDead):
            self._owner.on_dead_notice()
        else:
            self._owner.on_outputs(seat, message)

    def answered_call(self, seat: Seat, frames: list[bytes]) -> int | None:
        """The call that a message to this client answers."""
        try:
            message = decode_outputs(frames, self._dialect_of(seat))
        except ProtocolError:
            return None
        answer = message.utility_output if isinstance(message, EngineCoreOutputs) else None
        return None if answer is None else answer.call_id

    def _dialect_of(self, seat: Seat) -> Dialect | None:
        """Our own engine speaks to each client as that client does, so there each message has to tell; vLLM's has one
        way for all."""
        return self.dialect if seat.is_own or self.dialect is Dialect.V032 else None

    # ------------------------------------------------------------ to the engine

    def add(self, request: EngineCoreRequest) -> None:
        """From our own seat. Raises EngineDied when no engine is connected."""
        self.send(self.own, encode_request(request, self.dialect))

    def abort(self, ids: list[str]) -> None:
        """From our own seat, whoever's requests they are."""
        self.send(self.own, encode_request(AbortIds(ids), self.dialect))

    def utility(self, call: UtilityCall) -> None:
        self.send(self.own, encode_request(call, self.dialect))

    def send(self, seat: Seat, frames: list[bytes]) -> None:
        """Raises EngineDied when no engine is connected."""
        try:
            seat.input.send_multipart([self.identity, *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            raise EngineDied("the engine is not connected", cause=str(error)) from None
