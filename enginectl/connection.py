"""The caller's end of a socket of a supervisor: whether somebody listens there, and the zmq socket to it.

A path enters, a connected socket leaves, for its caller to close. Owns one zmq context per process, for all of its
connections: a context costs two threads, which a thousand callers in one program must not be multiplied by. Both die
with the process; a child that was forked makes its own."""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
import threading
from pathlib import Path

import zmq

from enginectl.envelope import MAX_MESSAGE_BYTES
from enginectl.errors import Unreachable
from enginectl.identity import ProcessId
from enginectl.silence import unreachable

HEARTBEAT_MS, HEARTBEAT_LIMIT_MS = 2000, 30_000
"""The kernel says at once that a peer is gone; this is for one that is there and does nothing. Beside more work than
the machine can do the threads of zmq itself may wait for seconds: none of that is a peer that is gone."""
MAX_SOCKETS = 65_535
"""Of one process; zmq's own limit is 1,023. Open files end it sooner."""
NO_FILES = (errno.EMFILE, errno.ENFILE)

_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}
_lock = threading.Lock()


def _after_fork() -> None:
    """Another thread may have held it just then, and that thread is not in the child."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    pid = os.getpid()
    with _lock:
        if pid not in _contexts:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            context.set(zmq.MAX_SOCKETS, min(MAX_SOCKETS, int(context.get(zmq.SOCKET_LIMIT))))
            _contexts[pid] = context
        return _contexts[pid]


def open_socket(kind: int, path: Path, *, subscribe: bool = False) -> zmq.Socket[bytes]:
    """Raises Unreachable when this process may open no more files."""
    try:
        sock = _context().socket(kind)
    except zmq.ZMQError as error:
        if error.errno not in NO_FILES:
            raise
        raise no_files(path) from None
    sock.setsockopt(zmq.LINGER, 0)
    sock.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    sock.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_LIMIT_MS)
    sock.setsockopt(zmq.RECONNECT_IVL, 200)
    if subscribe:
        sock.setsockopt(zmq.CONFLATE, 1)
        sock.setsockopt(zmq.SUBSCRIBE, b"")
    else:
        sock.setsockopt(zmq.RCVHWM, 10_000)
    sock.connect(f"ipc://{path}")
    return sock


def check_listening(path: Path, name: str, supervisor: ProcessId | None, timeout_s: float) -> None:
    """Whether somebody listens: zmq would connect to nothing for ever. Raises Unreachable."""
    try:
        seen = os.lstat(path)
        if not stat.S_ISSOCK(seen.st_mode) or seen.st_uid not in (os.geteuid(), 0):
            raise unreachable(name, supervisor, f"{path} is not a socket of yours")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(timeout_s)
            probe.connect(str(path))
    except BlockingIOError:
        return  # somebody listens and many connect at once; zmq tries again
    except TimeoutError:
        raise unreachable(name, supervisor, f"no connection to {path} within {timeout_s:.1f} s") from None
    except OSError as error:
        if error.errno in NO_FILES:
            raise no_files(path) from None
        raise unreachable(name, supervisor, f"{path}: {error.strerror or error}") from None


def no_files(path: Path) -> Unreachable:
    """It is this process that has reached its limit, not the supervisor."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Unreachable(
        f"no connection to {path}: this process has reached its limit of open files ({limit:,})",
        cause="each connection takes a few of them",
        try_=["ulimit -n 65536"],
    )
