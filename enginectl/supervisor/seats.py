"""Places at the engine: one pair of sockets for each client that INIT names.

Owns the ROUTER an engine takes requests from and the PULL it answers on. Bound as ipc in the engine's runtime
directory; the files come back when somebody removed them."""

from __future__ import annotations

import os
from pathlib import Path

import zmq

from engine import limits

CLIENT_HWM = 1000
"""Messages of an external client that may wait here; beyond that the engine keeps them, within its own budget."""


class Seat:
    """`index` is its place in INIT. `is_own`: the supervisor's, always the last; it reads whatever comes, at once."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], index: int, base: Path, *, is_own: bool) -> None:
        self.index = index
        self.is_own = is_own
        self.has_response = False
        self.response_frame = b""
        """As the engine sent it."""
        names = ("in.sock", "out.sock") if is_own else (f"in{index}.sock", f"out{index}.sock")
        self.input_path, self.output_path = base / names[0], base / names[1]
        self.input = router(context, limits.MAX_OUTPUT_FRAME_BYTES)
        self.output = context.socket(zmq.PULL)
        self.output.setsockopt(zmq.LINGER, 0)
        self.output.setsockopt(zmq.RCVHWM, 0 if is_own else CLIENT_HWM)
        self.output.setsockopt(zmq.MAXMSGSIZE, limits.MAX_OUTPUT_FRAME_BYTES)

    def bind(self) -> None:
        """Binds what has no socket file: at first, and after the runtime directory was removed."""
        for sock, path in ((self.input, self.input_path), (self.output, self.output_path)):
            if not os.path.lexists(path):
                sock.bind(f"ipc://{path}")

    def forget_engine(self) -> None:
        """Nothing of an earlier engine is left in the sockets."""
        self.has_response, self.response_frame = False, b""
        discard(self.output)
        discard(self.input)

    def close(self) -> None:
        self.input.close(0)
        self.output.close(0)


def router(context: zmq.Context[zmq.Socket[bytes]], max_bytes: int) -> zmq.Socket[bytes]:
    sock = context.socket(zmq.ROUTER)
    for option, value in (
        (zmq.LINGER, 0), (zmq.SNDHWM, 0), (zmq.RCVHWM, 0), (zmq.MAXMSGSIZE, max_bytes),
        (zmq.ROUTER_MANDATORY, 1), (zmq.ROUTER_HANDOVER, 1),
    ):  # fmt: skip
        sock.setsockopt(option, value)
    return sock


def receive(sock: zmq.Socket[bytes]) -> list[bytes] | None:
    """A whole message, or None when there is none."""
    try:
        return sock.recv_multipart(zmq.NOBLOCK)
    except zmq.ZMQError:
        return None


def discard(sock: zmq.Socket[bytes]) -> None:
    while receive(sock) is not None:
        pass
