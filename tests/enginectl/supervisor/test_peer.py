"""The kernel says who sent a message; an unknown sender is unknown, and costs no descriptor."""

from __future__ import annotations

import os
from pathlib import Path

import zmq

from enginectl.supervisor.peer import Peer, peer_of


def test_the_sender_of_a_frame_is_known_by_pid_and_user(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        router.bind(f"ipc://{tmp_path}/s")
        dealer.connect(f"ipc://{tmp_path}/s")
        dealer.send(b"x")
        assert router.poll(5000)
        frame = router.recv_multipart(copy=False)[-1]
        before = len(os.listdir("/proc/self/fd"))
        assert peer_of(frame) == Peer(os.getpid(), os.getuid())
        assert len(os.listdir("/proc/self/fd")) == before


class Frame:
    def __init__(self, fd: int) -> None:
        self.fd = fd

    def get(self, option: int) -> int:
        return self.fd


def test_a_descriptor_that_is_gone_or_another_files_is_nobody(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        before = os.listdir("/proc/self/fd")
        assert peer_of(Frame(file.fileno())) is None  # type: ignore[arg-type]
        assert peer_of(Frame(10_000)) is None  # type: ignore[arg-type]
        assert os.listdir("/proc/self/fd") == before
        assert not file.closed and file.write("still open")


def test_a_frame_without_a_connection_is_nobody() -> None:
    assert peer_of(zmq.Frame(b"made here")) is None
