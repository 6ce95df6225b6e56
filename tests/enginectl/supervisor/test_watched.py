"""A port of this machine on which nobody listens: who tries it long enough is connected with itself one day."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
import zmq

from engine.messages import EngineHandshakeMetadata
from enginectl.supervisor import join
from enginectl.supervisor.join import FrontendLink
from enginectl.supervisor.loop import Loop
from enginectl.supervisor.watched import Watched, is_own_end
from tests.support.frontend import RawFrontend
from tests.support.ports import kept_address


@pytest.fixture
def context() -> zmq.Context[zmq.Socket[bytes]]:
    return zmq.Context()


@pytest.fixture
def address() -> Iterator[str]:
    with kept_address() as kept:
        yield kept


def with_itself(address: str) -> str:
    """That address, come from by that address: a connection with itself, for sure."""
    return f"{address};{address.removeprefix('tcp://')}"


class Owner:
    """Joins whoever asks."""

    def __init__(self) -> None:
        self.joined: list[EngineHandshakeMetadata] = []
        self.troubles: list[str] = []

    def on_init(self, init: EngineHandshakeMetadata) -> str:
        return ""

    def on_joined(self, init: EngineHandshakeMetadata) -> None:
        self.joined.append(init)

    def on_message(self, client: int, frames: list[bytes]) -> None: ...

    def on_gone(self, why: str) -> None: ...

    def on_trouble(self, text: str) -> None:
        self.troubles.append(text)


def run_until(loop: Loop, condition: object, limit_s: float = 20.0) -> None:
    """The loop, until the condition holds."""
    end = time.monotonic() + limit_s

    def look() -> None:
        if condition():  # type: ignore[operator]
            loop.stop()
        else:
            assert time.monotonic() < end
            loop.after(0.01, look)

    loop._stopping = False
    look()
    loop.run()


def test_both_ends_are_told_apart(address: str) -> None:
    with socket.socket() as alone, socket.create_server(("127.0.0.1", 0)) as server:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        here = ("127.0.0.1", int(address.rpartition(":")[2]))
        alone.bind(here)
        alone.connect(here)
        assert is_own_end(alone.fileno())
        with socket.create_connection(server.getsockname()) as other:
            assert not is_own_end(other.fileno())
    assert not is_own_end(alone.fileno())


def test_an_own_hello_is_no_answer_and_lets_go_of_the_port(
    context: zmq.Context[zmq.Socket[bytes]], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "RETRY_S", 0.01)
    loop, owner = Loop(), Owner()
    link = FrontendLink(loop, context, with_itself(address), b"\0\0", owner)
    link.open()
    run_until(loop, lambda: link._attempt >= 3)
    link.address = address
    with RawFrontend(handshake=link.address) as frontend:
        run_until(loop, lambda: frontend._handshake.poll(0))
        frontend.take_status()
        frontend.send_init()
        run_until(loop, lambda: link.is_joined)
        assert (len(owner.joined), owner.troubles) == (1, [])
        link.close()
    context.term()


def test_a_connection_with_itself_is_not_told(context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
    """Else a frontend that went would count as come back."""
    loop, told = Loop(), list[int]()
    sock = context.socket(zmq.DEALER)
    sock.setsockopt(zmq.LINGER, 0)
    watched = Watched(loop, sock, told.append)
    sock.connect(with_itself(address))
    sock.send(b"there and back")
    run_until(loop, lambda: sock.poll(0))
    assert told == []
    watched.close()
    context.term()
