"""The control socket: requests come in, each becomes a Session that one handler answers.

Owns the ROUTER on control.sock and the XPUB on stats.sock, and notices when their files are removed or taken by
somebody else. A caller that vanished is seen when something is sent to it, at the latest with the next beat."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq
from msgspec import Raw, Struct

from engine.messages import NIL
from enginectl.connection import HEARTBEAT_LIMIT_MS, HEARTBEAT_MS
from enginectl.control import BEAT_S, ControlReply, ControlRequest
from enginectl.envelope import MAX_MESSAGE_BYTES, decode_request, encode, error_info, pack
from enginectl.errors import CtlError
from enginectl.supervisor.loop import Loop, Task
from enginectl.supervisor.peer import Peer, peer_of

MAX_PER_TURN = 32
BACKLOG = 4096
"""Callers that may connect at the same moment; the kernel caps it at its own limit."""
SEND_QUEUE = 10_000
"""Replies that may wait for one slow caller before it counts as gone."""


class Session:
    """One request and its answers. Ends with reply, end or error, or when its caller is gone."""

    def __init__(self, server: Server, peer: bytes, request: ControlRequest, process: Peer | None = None) -> None:
        self.request = request
        self.peer_process = process
        self.subject = ""
        """What the verb is about, for its event: ids, a utility."""
        self.outcome = "done"
        self.task: Task[None] | None = None
        self.is_open = True
        self._server = server
        self._peer = peer

    def item(self, value: Struct) -> None:
        self._send(ControlReply(id=self.request.id, kind="item", data=pack(value)))

    def reply(self, value: Struct) -> None:
        self._last(ControlReply(id=self.request.id, kind="reply", data=pack(value)))

    def end(self, value: Struct | None = None) -> None:
        data = NIL if value is None else pack(value)
        self._last(ControlReply(id=self.request.id, kind="end", data=data))

    def error(self, error: CtlError) -> None:
        self._last(ControlReply(id=self.request.id, kind="error", error=error_info(error)))

    def beat(self) -> None:
        self._send(ControlReply(id=self.request.id, kind="beat"))

    def _last(self, reply: ControlReply) -> None:
        self._send(reply)
        self.is_open = False
        self._server.sessions.discard(self)

    def _send(self, reply: ControlReply) -> None:
        if self.is_open and not self._server.send(self._peer, reply):
            self.abandon()

    def abandon(self) -> None:
        """The caller is gone: its task is cancelled, which aborts what served it alone."""
        self.is_open = False
        self._server.sessions.discard(self)
        if self.task is not None:
            self._server.loop.soon(self.task.cancel)


class Server:
    def __init__(
        self, loop: Loop, context: zmq.Context[zmq.Socket[bytes]], base: Path, handle: Callable[[Session], None]
    ) -> None:
        self.loop = loop
        self.sessions: set[Session] = set()
        self.rejected = 0
        self._handle = handle
        self._control = Endpoint(context, zmq.ROUTER, base / "control.sock")
        self._stats = Endpoint(context, zmq.XPUB, base / "stats.sock")
        self._subscribers = 0
        self._was_new = False
        control, stats = self._control.socket, self._stats.socket
        control.setsockopt(zmq.ROUTER_MANDATORY, 1)
        control.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        control.setsockopt(zmq.SNDHWM, SEND_QUEUE)
        stats.setsockopt(zmq.SNDHWM, 4)
        stats.setsockopt(zmq.MAXMSGSIZE, 4096)
        stats.setsockopt(zmq.XPUB_VERBOSER, 1)

    def bind(self) -> None:
        self._control.bind()
        self._stats.bind()
        self.loop.watch(self._control.socket, self._read_control)
        self.loop.watch(self._stats.socket, self._read_stats)
        self.loop.after(BEAT_S, self._beat)

    def check(self) -> list[str]:
        """Rebinds what was removed or taken; says what it found."""
        return [text for endpoint in (self._control, self._stats) if (text := endpoint.check())]

    # ------------------------------------------------------------ control

    def _read_control(self) -> None:
        for _ in range(MAX_PER_TURN):
            try:
                frames = self._control.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.ZMQError:
                return
            try:
                request = decode_request(frames[-1].bytes)
            except (msgspec.MsgspecError, RecursionError, ValueError):
                self.rejected += 1
                continue
            if len(frames) not in (2, 3):
                self.rejected += 1
                continue
            session = Session(self, frames[0].bytes, request, peer_of(frames[-1]))
            self.sessions.add(session)
            self._handle(session)

    def send(self, peer: bytes, reply: ControlReply) -> bool:
        """False when the caller is gone or reads nothing."""
        try:
            self._control.socket.send_multipart([peer, encode(reply)], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def _beat(self) -> None:
        self.loop.after(BEAT_S, self._beat)
        for session in list(self.sessions):
            session.beat()

    # ------------------------------------------------------------ stats

    def _read_stats(self) -> None:
        """Subscriptions: nobody who does not subscribe costs anything."""
        for _ in range(MAX_PER_TURN):
            try:
                frame = self._stats.socket.recv(zmq.NOBLOCK)
            except zmq.ZMQError:
                return
            if frame[:1] == b"\x01":
                self._subscribers += 1
                self._was_new = True
            elif frame[:1] == b"\x00":
                self._subscribers = max(0, self._subscribers - 1)

    @property
    def has_watchers(self) -> bool:
        return self._subscribers > 0

    def take_new_watcher(self) -> bool:
        """True once after somebody subscribed: they get a view at once."""
        was, self._was_new = self._was_new, False
        return was

    def publish(self, view: Raw) -> None:
        try:
            self._stats.socket.send(view, zmq.NOBLOCK)
        except zmq.ZMQError:
            pass

    def close(self) -> None:
        """What was sent may still leave for a second."""
        for endpoint in (self._control, self._stats):
            self.loop.unwatch(endpoint.socket)
            endpoint.socket.close(1000)


class Endpoint:
    """A bound ipc socket and the file that should be its own."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], kind: int, path: Path) -> None:
        self.path = path
        self.socket = context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 1000)
        self.socket.setsockopt(zmq.BACKLOG, BACKLOG)
        self.socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self.socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_LIMIT_MS)
        self._inode = 0

    def bind(self) -> None:
        """Again on the same path after it was lost: the earlier listener stays, since closing it would remove the new
        file, and the connections it has stay with it."""
        self.socket.bind(f"ipc://{self.path}")
        self._inode = os.lstat(self.path).st_ino

    def check(self) -> str:
        """Empty when the file is still ours."""
        try:
            seen = os.lstat(self.path).st_ino
        except OSError:
            seen = 0
        if seen == self._inode:
            return ""
        self.bind()
        return f"{self.path} was {'taken by another process' if seen else 'removed'}; bound again"
