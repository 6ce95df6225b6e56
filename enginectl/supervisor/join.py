"""The engine's place at an external frontend: HELLO, INIT, READY, and one pair of sockets for each of its clients.

Frames come from the frontend and go to it, never changed. Owns the DEALER of the handshake, a DEALER and a PUSH a
client, and their monitors. Never blocks but in close(). A frontend that goes away is noticed by the monitors; a fresh
HELLO then waits for it or its successor. HELLO goes once per connection: a second one would end a frontend."""

from __future__ import annotations

import time
from collections import deque
from typing import Protocol

import zmq

from engine import limits
from engine.codec import decode_init, encode_message
from engine.errors import ProtocolError
from engine.messages import ENGINE_CORE_DEAD, EngineHandshakeMetadata, HandshakeStatus
from enginectl.supervisor.loop import Loop
from enginectl.supervisor.seats import CLIENT_HWM, receive
from enginectl.supervisor.watched import DOWN, NOT_ZMQ, UP, Watched

RETRY_S = 0.5
SILENCE_S = 15.0
"""A frontend answers HELLO at once; one that does not for so long has its engine already, or is something else."""
RETURN_S = 2.0
"""A connection that broke may come back for so long before its frontend counts as gone."""
COME_UP_S = 600.0
"""How long the processes of a frontend may take to come up after its INIT."""
FLUSH_S = 0.01
LINGER_MS = 2000
MAX_PER_TURN = 64
_HELLO = encode_message(HandshakeStatus("HELLO", local=False, headless=True))
Socket = zmq.Socket[bytes]


class LinkOwner(Protocol):
    """Who hears what the frontend does."""

    def on_init(self, init: EngineHandshakeMetadata) -> str:
        """Empty to join; else why not, and the link closes. Changes nothing."""
        ...

    def on_joined(self, init: EngineHandshakeMetadata) -> None:
        """Its clients can be connected to."""
        ...

    def on_message(self, client: int, frames: list[bytes]) -> None: ...

    def on_gone(self, why: str) -> None:
        """Joined until now."""
        ...

    def on_trouble(self, text: str) -> None:
        """The handshake does not go on, for this reason; it is tried again."""
        ...


class Client:
    """One client of the frontend: where its requests come from, where its outputs go."""

    def __init__(self, link: FrontendLink, index: int, input_address: str, output_address: str) -> None:
        """Raises ProtocolError for an address that cannot be one."""
        self.index = index
        self.was_connected = self.is_connected = False
        """Several API servers come up long after INIT; until then connections break for other reasons."""
        self.pending: deque[list[bytes]] = deque()
        """What its output socket does not take now."""
        self.input = Watched(link.loop, link.new_socket(zmq.DEALER), lambda event: link.on_event(self, event))
        self.output = link.new_socket(zmq.PUSH)
        self.input.socket.setsockopt(zmq.IDENTITY, link.identity)
        self.output.setsockopt(zmq.SNDHWM, CLIENT_HWM)
        self._connect(self.input.socket, input_address)
        self._connect(self.output, output_address)
        link.loop.watch(self.input.socket, lambda: link.read(self))

    def _connect(self, sock: Socket, address: str) -> None:
        """Raises ProtocolError; nothing of it is left then, else the context could never end."""
        try:
            sock.connect(address)
        except zmq.ZMQError as error:
            self.close(0)
            raise ProtocolError(f"INIT: cannot connect to {address[:100]!r}: {error}") from None

    def send(self, frames: list[bytes]) -> bool:
        """False: not now."""
        try:
            self.output.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def close(self, linger_ms: int) -> None:
        self.input.close(0)
        self.output.close(linger_ms)


class FrontendLink:
    """open(); on_init; ready() once the engine serves; send() outputs; close()."""

    def __init__(
        self, loop: Loop, context: zmq.Context[Socket], address: str, identity: bytes, owner: LinkOwner
    ) -> None:
        self.loop = loop
        self.address = address
        self.identity = identity
        self.init: EngineHandshakeMetadata | None = None
        self.clients: list[Client] = []
        self.is_ready = False
        """READY was sent to this frontend."""
        self.is_closed = False
        self._context = context
        self._owner = owner
        self._handshake: Watched | None = None
        self._attempt = 0
        self._spoke_at: float | None = None

    @property
    def is_joined(self) -> bool:
        return self.init is not None

    def new_socket(self, kind: int) -> Socket:
        sock: Socket = self._context.socket(kind)
        for option, value in (
            (zmq.LINGER, 0), (zmq.IPV6, 1), (zmq.SNDHWM, 0), (zmq.RCVHWM, 0), (zmq.RECONNECT_IVL_MAX, 1000),
            (zmq.MAXMSGSIZE, limits.MAX_FRAME_BYTES), (zmq.TCP_KEEPALIVE, 1), (zmq.TCP_KEEPALIVE_IDLE, 30),
            (zmq.TCP_KEEPALIVE_INTVL, 10), (zmq.TCP_KEEPALIVE_CNT, 3),
        ):  # fmt: skip
            sock.setsockopt(option, value)
        return sock

    # ------------------------------------------------------------ handshake

    def open(self) -> None:
        """Sends HELLO as soon as somebody listens. Raises ProtocolError for an address that cannot be one."""
        if self.is_closed or self.is_joined or self._handshake is not None:
            return
        self._attempt += 1
        self._spoke_at = None
        sock = self.new_socket(zmq.DEALER)
        sock.setsockopt(zmq.IDENTITY, self.identity)
        sock.setsockopt(zmq.MAXMSGSIZE, limits.MAX_READY_RESPONSE_BYTES)
        self._handshake = Watched(self.loop, sock, self._on_handshake_event)
        self.loop.watch(sock, self._read_handshake)
        try:
            sock.connect(self.address)
        except zmq.ZMQError as error:
            self._close_handshake()
            raise ProtocolError(f"cannot connect to {self.address!r}: {error}") from None
        sock.send(_HELLO, zmq.NOBLOCK)

    def _on_handshake_event(self, event: int) -> None:
        if event & UP:
            self._spoke_at = time.monotonic()
            attempt = self._attempt
            self.loop.after(SILENCE_S, lambda: self._check_silence(attempt))
        elif event & NOT_ZMQ or (event & DOWN and self._spoke_at is None):
            self._retry(f"what listens on {self.address} does not speak ZMQ: is that the HTTP port of a frontend?")
        elif event & DOWN and self.is_joined:
            self._go("its handshake socket closed before the engine was ready") if not self.is_ready else None
        elif event & DOWN:
            self._retry(
                f"the frontend at {self.address} ended after HELLO: one that starts its own engine does so; "
                "it needs --data-parallel-size-local 0"
            )

    def _check_silence(self, attempt: int) -> None:
        if attempt == self._attempt and not self.is_joined and self._handshake is not None:
            self._owner.on_trouble(
                f"the frontend at {self.address} does not answer HELLO: another engine may have taken its place "
                f"(engine {int.from_bytes(self.identity, 'little')})"
            )

    def _retry(self, why: str) -> None:
        self._try_again()
        self._owner.on_trouble(why)

    def _try_again(self) -> None:
        self._close_handshake()
        self.loop.after(RETRY_S, self._open_again)

    def _open_again(self) -> None:
        if not self.is_closed and not self.is_joined:
            self.open()

    def _read_handshake(self) -> None:
        frames = receive(self._handshake.socket) if self._handshake is not None else None
        if frames is None or self.is_joined:
            return
        if frames == [_HELLO]:  # from ourselves, see is_own_end; while it lasts no frontend can listen there
            self._try_again()
            return
        try:
            if len(frames) != 1:
                raise ProtocolError(f"INIT has {len(frames)} frames, not one")
            init = decode_init(frames[0])
        except ProtocolError as error:
            self._owner.on_trouble(f"the frontend at {self.address}: {error}")
            return
        why = self._owner.on_init(init) or self._meet(init)
        if why:
            self._refuse(why)
        else:
            self._owner.on_joined(init)

    def _refuse(self, why: str) -> None:
        """This frontend is told and let go; its successor may be better."""
        self._close_clients(0)
        self.init = None
        self.fail()
        self._owner.on_trouble(why)
        self.loop.after(RETURN_S, self._open_again)

    def _meet(self, init: EngineHandshakeMetadata) -> str:
        """Connects to its clients. Empty, or why that cannot be."""
        self.init = init
        try:
            for index, (source, target) in enumerate(zip(init.addresses.inputs, init.addresses.outputs, strict=True)):
                self.clients.append(Client(self, index, source, target))
        except ProtocolError as error:
            return f"the frontend at {self.address}: {error}"
        for client in self.clients:
            self.loop.after(COME_UP_S, lambda client=client: self._check_client(client))  # type: ignore[misc]
        return ""

    def ready(self, responses: list[bytes]) -> None:
        """The engine serves: its ready response to each client, READY to the frontend. Once per frontend."""
        if not self.is_joined or self.is_ready or self._handshake is None:
            return
        self.is_ready = True
        for client, response in zip(self.clients, responses, strict=False):
            client.input.socket.send(response, zmq.NOBLOCK)
        self._say("READY")

    def fail(self) -> None:
        """No engine will come. A frontend that still waits for one ends at a status it does not know; it has no other
        way to learn it."""
        if self._handshake is not None and not self.is_ready:
            self._say("FAILED")

    def _say(self, status: str) -> None:
        if self._handshake is not None:
            self._handshake.socket.send(encode_message(HandshakeStatus(status, local=False, headless=True)))
            self._close_handshake(LINGER_MS)

    def _close_handshake(self, linger_ms: int = 0) -> None:
        if self._handshake is not None:
            self._handshake.close(linger_ms)
            self._handshake = None

    # ------------------------------------------------------------ clients

    def read(self, client: Client) -> None:
        for _ in range(MAX_PER_TURN):
            frames = receive(client.input.socket) if not client.input.socket.closed else None
            if frames is None:
                return
            self._owner.on_message(client.index, frames)

    def on_event(self, client: Client, event: int) -> None:
        if event & UP:
            client.was_connected = client.is_connected = True
        elif event & DOWN and client.was_connected:
            client.is_connected = False
            self.loop.after(RETURN_S, lambda: self._check_client(client))

    def _check_client(self, client: Client) -> None:
        if not client.is_connected and client in self.clients:
            self._go("a client's connection broke")

    def _go(self, why: str) -> None:
        """The frontend is gone: everything of it is closed, a fresh HELLO waits."""
        self._close_clients(0)
        self._close_handshake()
        self.init, self.is_ready = None, False
        self._owner.on_gone(why)
        self.loop.after(RETRY_S, self._open_again)

    def send(self, client: int, frames: list[bytes]) -> bool:
        """False when it has to wait: then send no more to this client until is_clear. A client that is gone takes
        everything."""
        if client >= len(self.clients):
            return True
        target = self.clients[client]
        if target.pending or not target.send(frames):
            target.pending.append(frames)
            return False
        return True

    def is_clear(self, client: int) -> bool:
        """Tries once more; True when nothing waits."""
        if client >= len(self.clients):
            return True
        target = self.clients[client]
        while target.pending and target.send(target.pending[0]):
            target.pending.popleft()
        return not target.pending

    def dead(self) -> None:
        """The last message of all to every client, behind what waits for it."""
        for client in self.clients:
            self.send(client.index, [ENGINE_CORE_DEAD])

    def _close_clients(self, linger_ms: int) -> None:
        for client in self.clients:
            client.close(linger_ms)
        self.clients = []

    def close(self) -> None:
        """What waits, and what was sent, may still leave for two seconds each."""
        self.is_closed = True
        self._close_handshake()
        end = time.monotonic() + LINGER_MS / 1000
        while not all(self.is_clear(client.index) for client in self.clients) and time.monotonic() < end:
            time.sleep(FLUSH_S)
        self._close_clients(LINGER_MS)
        self.init = None
