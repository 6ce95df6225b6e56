"""Which process sent a message: the kernel's word, asked of the connection that the frame came by.

A frame enters, pid and uid leave. The connection may be gone by then: that is no error, only unknown."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

import zmq

_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    pid: int
    uid: int


def peer_of(frame: zmq.Frame) -> Peer | None:
    """Of a frame that was received without a copy from an ipc socket."""
    try:
        fd = os.dup(int(frame.get(zmq.SRCFD)))
    except (OSError, zmq.ZMQError):
        return None
    try:
        data = _credentials(fd)
    except OSError:
        return None  # the number is another file's already
    finally:
        os.close(fd)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return Peer(pid, uid) if pid > 0 else None


def _credentials(fd: int) -> bytes:
    """Leaves `fd` open."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd)
    try:
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    finally:
        sock.detach()
