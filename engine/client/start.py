"""A start as the frontend sees it: bind, spawn, HELLO, INIT, ready response and READY in either order.

Enters: settings. Leaves: a StartedEngine that owns the process, the two sockets and their directory, or an
EngineStartError with the phase and the cause; then nothing is left behind. Blocks; every wait is bounded."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import zmq

from engine import limits
from engine.client.launcher import Launch, spawn
from engine.client.process import EngineProcess
from engine.codec import decode_ready_response, decode_status, encode_message
from engine.config import EngineConfig
from engine.errors import ConfigError, EngineStartError, ProtocolError
from engine.messages import EngineCoreReadyResponse, EngineHandshakeMetadata, EngineZmqAddresses

T = TypeVar("T")
Socket: TypeAlias = "zmq.Socket[bytes]"
Transport: TypeAlias = Literal["ipc", "tcp"]
MAX_IPC_PATH_BYTES = 107
"""Of a Unix socket's path, a limit of the kernel."""
LOOK_EVERY_MS = 100
"""How often a start looks whether it has been given up; what the engine does is noticed at once."""
GIVE_UP_TERM_S = 1.0


@dataclass(slots=True)
class StartedEngine:
    """A running engine and what belongs to it. close() gives back all but the process."""

    process: EngineProcess
    context: zmq.Context[Socket]
    input_socket: Socket
    output_socket: Socket
    directory: Path
    identity: bytes
    ready: EngineCoreReadyResponse

    def close(self) -> None:
        """The sockets and the private directory; unsent messages are dropped."""
        self.context.destroy(linger=0)
        shutil.rmtree(self.directory, ignore_errors=True)

    def abandon(self) -> None:
        """All of it, the process first: for a start that nobody waits for any more."""
        self.process.stop(GIVE_UP_TERM_S)
        self.close()
        self.process.close()


@dataclass(slots=True)
class _Sockets:
    context: zmq.Context[Socket]
    handshake: Socket
    input: Socket
    output: Socket


def start_engine(
    config: EngineConfig,
    *,
    engine_index: int = 0,
    transport: Transport = "ipc",
    launch: Launch = "command",
    start_timeout_s: float = 300.0,
    log_path: Path | None = None,
    given_up: Callable[[], bool] = lambda: False,
) -> StartedEngine:
    """Blocks until the engine is ready. log_path: where its log goes; None, a file in the private directory.

    given_up: asked every 0.1 s from this thread; true ends the start. Raises EngineStartError."""
    directory = private_directory()
    context: zmq.Context[Socket] = zmq.Context()
    process: EngineProcess | None = None
    try:
        sockets = _bind(context, directory, transport)
        log = log_path or directory / "engine.log"
        process = spawn(config, _endpoint(sockets.handshake), engine_index, log, launch)
        attempt = _Attempt(process, sockets, start_timeout_s, given_up)
        ready = attempt.run(engine_index.to_bytes(2, "little"))
        sockets.handshake.close()
        (directory / "handshake.sock").unlink(missing_ok=True)  # libzmq leaves it
    except BaseException:
        if process is not None:
            process.stop(GIVE_UP_TERM_S)
            process.close()
        context.destroy(linger=0)
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return StartedEngine(process, context, sockets.input, sockets.output, directory, attempt.identity, ready)


# ---------------------------------------------------------------- sockets


def private_directory() -> Path:
    """A new directory, mode 0700, with a path short enough for Unix sockets. Raises ConfigError."""
    for parent in (None, "/tmp"):
        directory = Path(tempfile.mkdtemp(prefix="engine-", dir=parent))
        if len(bytes(directory / "handshake.sock")) <= MAX_IPC_PATH_BYTES:
            return directory
        directory.rmdir()
    raise ConfigError(f"no directory for sockets: {directory} is too long, {MAX_IPC_PATH_BYTES} bytes is the limit")


def _bind(context: zmq.Context[Socket], directory: Path, transport: Transport) -> _Sockets:
    handshake, requests, outputs = (context.socket(kind) for kind in (zmq.ROUTER, zmq.ROUTER, zmq.PULL))
    for socket, name in ((handshake, "handshake"), (requests, "input"), (outputs, "output")):
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, limits.MAX_FRAME_BYTES)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.bind(f"ipc://{directory}/{name}.sock" if transport == "ipc" else "tcp://127.0.0.1:0")
    requests.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an engine that is gone is an error, not a message into the void
    return _Sockets(context, handshake, requests, outputs)


def _endpoint(socket: Socket) -> str:
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


# ---------------------------------------------------------------- the handshake


class _Attempt:
    """One start: waits for frames, and meanwhile for the end of the process and what it says of itself."""

    def __init__(self, process: EngineProcess, sockets: _Sockets, timeout_s: float, given_up: Callable[[], bool]):
        self.process = process
        self.sockets = sockets
        self.timeout_s = timeout_s
        self.given_up = given_up
        self.end = time.monotonic() + timeout_s
        self.identity = b""

    def run(self, identity: bytes) -> EngineCoreReadyResponse:
        self.identity = identity
        self._expect_status("HELLO", self._receive([self.sockets.handshake])[1])
        self.sockets.handshake.send_multipart([identity, encode_message(self._init())])
        ready: EngineCoreReadyResponse | None = None
        waited_for = [self.sockets.handshake, self.sockets.input]
        while waited_for:
            socket, frame = self._receive(waited_for)
            waited_for.remove(socket)
            if socket is self.sockets.handshake:
                self._expect_status("READY", frame)
            else:
                ready = self._read(decode_ready_response, frame)
        assert ready is not None
        return ready

    def _init(self) -> EngineHandshakeMetadata:
        addresses = EngineZmqAddresses(inputs=[_endpoint(self.sockets.input)], outputs=[_endpoint(self.sockets.output)])
        return EngineHandshakeMetadata(addresses, {})

    def _receive(self, sockets: list[Socket]) -> tuple[Socket, bytes]:
        """The next frame from our engine. Raises EngineStartError when the process ends, fails or is too slow."""
        poller = zmq.Poller()
        for socket in sockets:
            poller.register(socket, zmq.POLLIN)
        poller.register(self.process.pidfd, zmq.POLLIN)
        while True:
            events = dict(poller.poll(LOOK_EVERY_MS))
            self.process.status.read()
            for socket in sockets:
                if socket in events:
                    frames = socket.recv_multipart()
                    if len(frames) == 2 and frames[0] == self.identity:
                        return socket, frames[1]
            if self.process.pidfd in events:
                raise self._failed(self.process.describe_end())
            self._check_patience()

    def _check_patience(self) -> None:
        if self.process.status.failure is not None:
            self.process.wait(GIVE_UP_TERM_S)
            raise self._failed(self.process.describe_end())
        if self.given_up():
            raise self._failed("the start was given up")
        if time.monotonic() > self.end:
            raise self._failed(f"the engine was not ready within {self.timeout_s:g} s")

    def _expect_status(self, status: str, frame: bytes) -> None:
        found = self._read(decode_status, frame)
        if (found.status, found.local, found.headless) != (status, True, False):
            raise self._failed(f"{status} expected, the engine sent {found}")

    def _read(self, decode: Callable[[bytes], T], frame: bytes) -> T:
        try:
            return decode(frame)
        except ProtocolError as error:
            raise self._failed(str(error)) from None

    def _failed(self, what: str) -> EngineStartError:
        status = self.process.status
        phase = status.failure.phase if status.failure is not None else status.phase
        return EngineStartError(f"start failed in phase {phase!r}: {what}", phase=phase, cause=self.process.cause())
