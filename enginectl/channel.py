"""One conversation with a supervisor: requests go out, replies, items and errors come back.

Owns a DEALER (or a SUB), opened with the first request. Blocks the calling thread, with a deadline: connect, reply and
the whole operation each have their own, and the error names the one that passed. Dies by close(), which never waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

import msgspec
import zmq
from msgspec import Struct

from enginectl import __version__
from enginectl.connection import check_listening, open_socket
from enginectl.control import BEAT_S, ControlReply, ControlRequest, EngineView, ErrorInfo
from enginectl.envelope import decode_reply, encode, error_from, pack
from enginectl.errors import Bug, CtlError, Deadline, EngineDied, UnknownVerb
from enginectl.identity import ProcessId, is_alive, is_stopped
from enginectl.silence import unreachable

T = TypeVar("T")
E = TypeVar("E")
CONNECT_TIMEOUT_S = 2.0
REPLY_TIMEOUT_S = 5.0
BUSY_S = 30.0
"""For the rest of an answer that has begun, of a supervisor that lives and is not stopped: it gets no turn, and what it
does for this caller would be lost."""
LOOK_MS, LATER_LOOK_MS = 250, 1000
"""How often a wait looks whether the supervisor still lives: at first, and once it has answered."""
LAST_WORDS_MS = 100
"""What it sent before it ended may still be on its way."""


class ControlClient:
    """Speaks to one supervisor. One thread at a time. `supervisor` (from its record) makes the errors say more."""

    def __init__(
        self,
        path: Path | str,
        *,
        name: str = "",
        supervisor: ProcessId | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
    ) -> None:
        """Raises Unreachable when nobody listens at `path`."""
        self.path = Path(path)
        self.name = name or self.path.parent.name
        self.supervisor = supervisor
        self.reply_timeout_s = reply_timeout_s
        self.on_quiet: Callable[[float], None] | None = None
        """Called while nothing comes, with the seconds since something did; beats do not count."""
        self._next_id = 0
        check_listening(self.path, self.name, supervisor, connect_timeout_s)
        self._opened: zmq.Socket[bytes] | None = None

    @property
    def _socket(self) -> zmq.Socket[bytes]:
        """Who only has streams, each on a connection of its own, needs none here."""
        if self._opened is None:
            self._opened = open_socket(zmq.DEALER, self.path)
        return self._opened

    def request(self, verb: str, args: Struct, result_type: type[T], timeout_s: float | None = None) -> T:
        """One request, one reply. `timeout_s`: the whole operation; None leaves it to the reply deadline, which beats
        extend. Raises what the supervisor answered, Deadline, Unreachable or EngineDied."""
        number = self._send(verb, args)
        for reply in self._replies(verb, number, timeout_s):
            if reply.kind in ("reply", "end"):
                return _convert(reply, result_type, verb)
        raise Bug(f"verb {verb!r} was left without an answer")

    def stream(
        self,
        verb: str,
        args: Struct,
        item_type: type[T],
        end_type: type[E] | None = None,
        timeout_s: float | None = None,
        on_quiet: Callable[[float], None] | None = None,
    ) -> ControlStream[T, E]:
        """Begins a stream on a connection of its own; closing it early tells the supervisor that nobody listens."""
        client = ControlClient(
            self.path, name=self.name, supervisor=self.supervisor, reply_timeout_s=self.reply_timeout_s
        )
        client.on_quiet = on_quiet
        return ControlStream(client, verb, args, item_type, end_type, timeout_s)

    def _send(self, verb: str, args: Struct) -> int:
        self._next_id += 1
        request = ControlRequest(id=self._next_id, verb=verb, args=pack(args), version=__version__)
        try:
            self._socket.send(encode(request), zmq.NOBLOCK)
        except zmq.Again:
            raise self._silence(verb, 0.0) from None
        return self._next_id

    def _replies(self, verb: str, number: int, timeout_s: float | None) -> Iterator[ControlReply]:
        """Replies to `number` up to the last, beats left out. Late answers to earlier requests are discarded."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        heard = told = time.monotonic()
        first = True
        while True:
            limit = heard + self._patience_s(first)
            wait_s = (limit if end is None else min(limit, end)) - time.monotonic()
            look_ms = max(0, min(LOOK_MS if first else LATER_LOOK_MS, int(wait_s * 1000) + 1))
            asked = time.monotonic()
            if not self._socket.poll(look_ms):
                # how much longer than asked it took was our own wait for a turn, not the supervisor's silence
                heard += max(0.0, time.monotonic() - asked - look_ms / 1000)
                limit = heard + self._patience_s(first)
                if self._is_orphaned() and not self._socket.poll(LAST_WORDS_MS):
                    raise self._silence(verb, time.monotonic() - heard)
                if end is not None and time.monotonic() >= end:
                    raise self._too_long(verb, timeout_s or 0.0, was_heard=not first)
                if time.monotonic() >= limit:
                    raise self._silence(verb, time.monotonic() - heard)
                if self.on_quiet is not None:
                    self.on_quiet(time.monotonic() - told)
                continue
            reply = _decode(self._socket.recv(), verb)
            if reply.id != number:
                continue
            heard, first = time.monotonic(), False
            if reply.kind == "error":
                raise self._told(verb, reply.error)
            if reply.kind != "beat":
                yield reply
                told = time.monotonic()
            if reply.kind in ("reply", "end"):
                return

    def _patience_s(self, first: bool) -> float:
        if first:
            return self.reply_timeout_s
        patience_s = max(self.reply_timeout_s, 2 * BEAT_S)
        return patience_s if self.supervisor is None or is_stopped(self.supervisor) else max(BUSY_S, patience_s)

    def _is_orphaned(self) -> bool:
        return self.supervisor is not None and not is_alive(self.supervisor)

    def _told(self, verb: str, info: ErrorInfo | None) -> CtlError:
        """What the supervisor answered. One of an earlier version calls a verb it lacks a wrong command line."""
        if info is None:
            return Bug(f"verb {verb!r}: an error without a text")
        if info.id == "E1001" and "is not known to this supervisor" in info.message:
            return UnknownVerb(
                f"the supervisor of engine {self.name!r} was started by an older version and has no {verb!r}",
                cause=f"{info.message}; this command is version {__version__}",
                try_=[f"enginectl drain {self.name} && enginectl start {self.name}", f"enginectl status {self.name}"],
            )
        return error_from(info)

    def _too_long(self, verb: str, timeout_s: float, *, was_heard: bool) -> CtlError:
        if not was_heard and (is_stopped(self.supervisor) or timeout_s >= BEAT_S):
            return self._silence(verb, timeout_s)
        return Deadline(
            f"{verb} on engine {self.name!r} was not done in {timeout_s:.1f} s",
            cause="the supervisor answers; the operation takes longer" if was_heard else "no answer came until then",
            try_=[f"enginectl status {self.name}"],
        )

    def _silence(self, verb: str, waited_s: float) -> CtlError:
        """Which kind of silence it is, from the process table and the socket file."""
        who = self.supervisor
        if who is not None and not is_alive(who):
            return EngineDied(
                f"the supervisor of engine {self.name!r} ended while {verb} waited (pid {who.pid})",
                try_=[f"enginectl status {self.name}", f"enginectl logs {self.name}"],
            )
        there = "socket present" if self.path.exists() else "socket gone"
        return unreachable(self.name, who, f"no answer to {verb} in {waited_s:.1f} s ({there})")

    def close(self) -> None:
        """Never waits; safe to call twice."""
        if self._opened is not None:
            self._opened.close(0)

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ControlStream(Generic[T, E]):
    """Items of one stream as an iterator; `end` is there once it is exhausted. Closes its connection by itself."""

    def __init__(
        self,
        client: ControlClient,
        verb: str,
        args: Struct,
        item_type: type[T],
        end_type: type[E] | None,
        timeout_s: float | None,
    ) -> None:
        self.end: E | None = None
        self._client = client
        self._verb = verb
        self._item_type = item_type
        self._end_type = end_type
        self._replies = client._replies(verb, client._send(verb, args), timeout_s)

    def __iter__(self) -> ControlStream[T, E]:
        return self

    def __next__(self) -> T:
        try:
            for reply in self._replies:
                if reply.kind == "item":
                    return _convert(reply, self._item_type, self._verb)
                if self._end_type is not None:
                    self.end = _convert(reply, self._end_type, self._verb)
        except BaseException:
            self.close()
            raise
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Leaves the stream; whatever it was for is aborted when it serves this caller alone (generate)."""
        self._client.close()

    def __enter__(self) -> ControlStream[T, E]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StatsStream:
    """EngineViews as stats.sock publishes them: lossy, the youngest only. Missing supervisors are waited for."""

    def __init__(self, path: Path | str) -> None:
        self._socket = open_socket(zmq.SUB, Path(path), subscribe=True)
        self._decoder = msgspec.msgpack.Decoder(EngineView)

    def read(self, timeout_s: float = 0.0) -> EngineView | None:
        """The youngest view, None when none came within timeout_s or it could not be read."""
        if not self._socket.poll(int(timeout_s * 1000)):
            return None
        try:
            return self._decoder.decode(self._socket.recv())
        except (msgspec.MsgspecError, RecursionError):
            return None

    @property
    def fd(self) -> int:
        """For a selector: edge-triggered, so read() until it returns None."""
        return int(self._socket.getsockopt(zmq.FD))

    def close(self) -> None:
        self._socket.close(0)


def _decode(frame: bytes, verb: str) -> ControlReply:
    try:
        return decode_reply(frame)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Bug(f"the supervisor's answer to {verb!r} cannot be read", cause=str(error)) from None


def _convert(reply: ControlReply, kind: type[T], verb: str) -> T:
    try:
        return msgspec.msgpack.decode(reply.data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Bug(f"the supervisor's answer to {verb!r} cannot be read", cause=str(error)) from None
