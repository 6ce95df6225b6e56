"""An executor that makes its own process write down every frame that its sockets take or give."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import zmq

from tests.support.paced_executor import PacedExecutor


def _plain(frame: Any) -> str:
    return bytes(frame.buffer if isinstance(frame, zmq.Frame) else frame).hex()


def _note(way: str, frames: Sequence[Any]) -> None:
    with open(os.environ["RECORD_FRAMES"], "a") as file:
        file.write(json.dumps({"way": way, "frames": [_plain(frame) for frame in frames]}) + "\n")


def _record() -> None:
    send, receive = zmq.Socket.send_multipart, zmq.Socket.recv_multipart

    def sending(self: Any, parts: Sequence[Any], *args: Any, **options: Any) -> Any:
        if self.socket_type == zmq.PUSH:
            _note("out", parts)
        return send(self, parts, *args, **options)

    def receiving(self: Any, *args: Any, **options: Any) -> Any:
        frames = receive(self, *args, **options)
        if self.socket_type == zmq.DEALER:
            _note("in", frames)
        return frames

    zmq.Socket.send_multipart = sending  # type: ignore[method-assign,assignment]
    zmq.Socket.recv_multipart = receiving  # type: ignore[method-assign,assignment]


class RecordingExecutor(PacedExecutor):
    """Made before the IO threads are."""

    def __init__(self, *args: Any, **options: Any) -> None:
        _record()
        super().__init__(*args, **options)
