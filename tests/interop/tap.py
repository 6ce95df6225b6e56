"""A tap on one leg of the wire: an engine joins it, it joins the frontend, and what passes is written down.

Messages come in at either side and leave at the other as they came, one JSON line each in the record. To the engine it
is a frontend, to the frontend the engine. Owned by the process that made it (`Tap`), or, in front of an engine that
somebody else spawns (`python`), by that engine: it ends with its parent."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import zmq

from engine import codec
from engine.messages import EngineHandshakeMetadata, EngineZmqAddresses

IDENTITY = b"\0\0"
LOOK_MS = 100
Frames = Sequence[bytes]
Socket = zmq.Socket[bytes]


class Wire:
    """The sockets of one tap; run() turns until `is_over`. One engine, one handshake."""

    def __init__(self, upstream: str, record: Path) -> None:
        self.upstream = upstream
        self._record = record.open("a")
        self._context: zmq.Context[Socket] = zmq.Context()
        self._poller = zmq.Poller()
        self._ways: dict[Socket, Callable[[list[bytes]], None]] = {}
        self._near = self._socket(zmq.ROUTER, self._hello)
        self._near.bind("tcp://127.0.0.1:*")
        self.address = self._near.getsockopt_string(zmq.LAST_ENDPOINT)
        self._far: Socket | None = None

    def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            for sock, _ in self._poller.poll(LOOK_MS):
                self._ways[sock](sock.recv_multipart())
        self._context.destroy(linger=0)
        self._record.close()

    def _socket(self, kind: int, way: Callable[[list[bytes]], None] | None = None) -> Socket:
        sock = self._context.socket(kind)
        for option in (zmq.LINGER, zmq.SNDHWM, zmq.RCVHWM):
            sock.setsockopt(option, 0)
        if kind == zmq.DEALER:
            sock.setsockopt(zmq.IDENTITY, IDENTITY)
        if way is not None:
            self._ways[sock] = way
            self._poller.register(sock, zmq.POLLIN)
        return sock

    def _note(self, leg: str, client: int, frames: Frames) -> None:
        row = {"leg": leg, "client": client, "frames": [frame.hex() for frame in frames]}
        self._record.write(json.dumps(row) + "\n")
        self._record.flush()

    def _hello(self, frames: list[bytes]) -> None:
        self._note("from engine", -1, frames[1:])
        if self._far is None:
            self._far = self._socket(zmq.DEALER, self._init)
            self._far.connect(self.upstream)
        self._far.send_multipart(frames[1:])

    def _init(self, frames: list[bytes]) -> None:
        """INIT, with our addresses in the place of the frontend's."""
        init = codec.decode_init(frames[0])
        pairs = zip(init.addresses.inputs, init.addresses.outputs, strict=True)
        ours = [self._client(index, source, target) for index, (source, target) in enumerate(pairs)]
        addresses = EngineZmqAddresses(inputs=[pair[0] for pair in ours], outputs=[pair[1] for pair in ours])
        frame = codec.encode_message(EngineHandshakeMetadata(addresses, init.parallel_config))
        self._near.send_multipart([IDENTITY, frame])

    def _client(self, index: int, source: str, target: str) -> tuple[str, str]:
        """Both pairs of sockets of one client; where the engine finds its pair."""

        def pass_on(leg: str, to: Socket, before: Frames = (), skip: int = 0) -> Callable[[list[bytes]], None]:
            def way(frames: list[bytes]) -> None:
                self._note(leg, index, frames[skip:])
                to.send_multipart([*before, *frames[skip:]])

            return way

        near_in, far_in, near_out, far_out = map(self._socket, (zmq.ROUTER, zmq.DEALER, zmq.PULL, zmq.PUSH))
        for sock, way in (
            (near_in, pass_on("ready response", far_in, skip=1)),
            (far_in, pass_on("input", near_in, before=[IDENTITY])),
            (near_out, pass_on("output", far_out)),
        ):
            self._ways[sock] = way
            self._poller.register(sock, zmq.POLLIN)
        far_in.connect(source)
        far_out.connect(target)
        for sock in (near_in, near_out):
            sock.bind("tcp://127.0.0.1:*")
        return near_in.getsockopt_string(zmq.LAST_ENDPOINT), near_out.getsockopt_string(zmq.LAST_ENDPOINT)


class Tap:
    """In a thread of this process: `address` is where the engine joins."""

    def __init__(self, upstream: str, record: Path) -> None:
        self._stop = threading.Event()
        wire = Wire(upstream, record)
        self.address = wire.address
        self._thread = threading.Thread(target=wire.run, args=(self._stop.is_set,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(10)


def tapped_python(path: Path, python: str, record: Path) -> Path:
    """A program at `path` that is `python`, except that an engine it runs joins through a tap."""
    words = " ".join(f"'{word}'" for word in (sys.executable, str(Path(__file__).resolve()), python, str(record)))
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def _in_between(upstream: str, record: Path) -> str:
    """Forks a tap that ends with this process, which goes on to become the engine. Its address."""
    source, sink = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        os.dup2(sink, 3)
        os.closerange(4, 1024)  # the engine's own pipes must close with the engine
        wire = Wire(upstream, record)
        os.write(3, wire.address.encode())
        os.close(3)
        wire.run(lambda: os.getppid() != parent)
        os._exit(0)
    os.close(sink)
    with os.fdopen(source) as pipe:
        return pipe.read()


def _become(python: str, record: Path, words: list[str]) -> None:
    """exec of the interpreter, its handshake address changed for that of a tap when it has one."""
    if "--handshake" in words:
        place = words.index("--handshake") + 1
        words[place] = _in_between(words[place], record)
    elif "--headless" in words:
        host, port = (words.index(f"--data-parallel-{name}") + 1 for name in ("address", "rpc-port"))
        words[port] = _in_between(f"tcp://{words[host]}:{words[port]}", record).rpartition(":")[2]
    os.execv(python, [python, *words])


if __name__ == "__main__":
    _become(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
