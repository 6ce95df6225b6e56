"""The engine's side of the handshake against frontends that are late, cut, deaf, wrong, or not frontends at all."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from engine.errors import DeadlineError, EngineStartError, ProtocolError
from engine.handshake import Handshake, engine_identity
from engine.messages import EngineHandshakeMetadata
from tests.support.frontend import RawFrontend
from tests.support.wait import wait_until

pytestmark = pytest.mark.thread


@contextmanager
def greeting(address: str, **options: object) -> Iterator[tuple[Handshake, Future[EngineHandshakeMetadata]]]:
    """A handshake whose greet() runs in a thread, told to stop in the end."""
    stop = threading.Event()
    handshake = Handshake(address, should_stop=stop.is_set, **options)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(handshake.greet)
        try:
            yield handshake, future
        finally:
            stop.set()
            future.exception(10)
            handshake.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pipe(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    try:
        target.shutdown(socket.SHUT_WR)  # the other way goes on until its own end
    except OSError:
        pass


@pytest.mark.parametrize("index", [0, 1, 513])
def test_identity_is_two_bytes_little_endian(index: int) -> None:
    assert engine_identity(index) == bytes([index % 256, index // 256])


def test_identity_of_an_impossible_index() -> None:
    with pytest.raises(ProtocolError, match="70000"):
        engine_identity(70000)


@pytest.mark.parametrize("is_local", [True, False])
def test_hello_init_ready(tmp_path: Path, is_local: bool) -> None:
    with (
        RawFrontend(tmp_path, num_clients=2, is_local=is_local) as frontend,
        greeting(frontend.handshake_address, is_local=is_local) as (handshake, future),
    ):
        assert frontend.take_status().status == "HELLO"
        frontend.send_init()
        assert future.result(10).addresses == frontend.addresses
        assert handshake.addresses.inputs == frontend.addresses.inputs
        handshake.ready()
        assert frontend.take_status().status == "READY"


def test_a_frontend_that_is_gone_before_ready_is_noticed(tmp_path: Path) -> None:
    """As long as it is there nothing is wrong; then READY would be lost, and the engine serve nobody for ever."""
    frontend = RawFrontend(tmp_path)
    with greeting(frontend.handshake_address) as (handshake, future):
        frontend.take_status()
        frontend.send_init()
        future.result(10)
        handshake.check_open()
        frontend.close()

        def is_noticed() -> bool:
            try:
                handshake.check_open()
            except EngineStartError as error:
                return "READY would reach nobody" in str(error)
            return False

        wait_until(is_noticed, 10.0, "the broken connection")


def test_one_hello_while_the_frontend_thinks(tmp_path: Path) -> None:
    with RawFrontend(tmp_path) as frontend, greeting(frontend.handshake_address) as (_, future):
        frontend.take_status()
        with pytest.raises(TimeoutError):
            frontend.take_status(1.0)
        frontend.send_init()
        assert future.result(10)


def test_late_binder(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/h"
    with greeting(address) as (_, future):
        wait_until(future.running)
        with pytest.raises(TimeoutError):
            future.result(0.5)
        with RawFrontend(tmp_path) as frontend:
            assert frontend.handshake_address == address
            frontend.take_status()
            frontend.send_init()
            assert future.result(10).addresses == frontend.addresses


def test_late_binder_on_tcp() -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    with greeting(address) as (_, future), zmq.Context() as context:
        with pytest.raises(TimeoutError):
            future.result(0.5)
        with context.socket(zmq.ROUTER) as router:
            router.setsockopt(zmq.LINGER, 0)
            router.bind(address)
            assert router.poll(10_000)
            identity, _ = router.recv_multipart()
            router.send_multipart([identity, b"\xc1 garbage"])
            with pytest.raises(ProtocolError, match="INIT"):
                future.result(10)


def test_first_connection_cut() -> None:
    """A proxy closes the first two connections; the third one reaches ready, with one HELLO."""
    with RawFrontend() as frontend, socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(frontend.handshake_address.rsplit(":", 1)[1])
        links: list[socket.socket] = []

        def serve() -> None:
            for _ in range(2):
                listener.accept()[0].close()
            near = listener.accept()[0]
            far = socket.create_connection(("127.0.0.1", port))
            links.extend([near, far])
            back = threading.Thread(target=pipe, args=(far, near))
            back.start()
            pipe(near, far)
            back.join()

        proxy = threading.Thread(target=serve)
        proxy.start()
        with greeting(f"tcp://127.0.0.1:{listener.getsockname()[1]}") as (handshake, future):
            frontend.take_status()
            frontend.send_init()
            assert future.result(10).addresses == frontend.addresses
            handshake.ready()
            frontend.take_status()
        for link in links:
            with contextlib.suppress(OSError):  # the other end may have gone first
                link.shutdown(socket.SHUT_RDWR)  # wakes who reads it, as close() does not
        proxy.join(10)
        assert not proxy.is_alive()
        for link in links:
            link.close()


def test_deadline_when_nothing_listens(tmp_path: Path) -> None:
    handshake = Handshake(f"ipc://{tmp_path}/nobody", deadline_s=0.5)
    with pytest.raises(DeadlineError, match="nothing listens"):
        handshake.greet()
    handshake.close()


def test_deadline_when_the_frontend_is_silent(tmp_path: Path) -> None:
    with RawFrontend(tmp_path) as frontend:
        handshake = Handshake(frontend.handshake_address, deadline_s=1.0)
        with pytest.raises(DeadlineError, match="connected, but no answer to HELLO"):
            handshake.greet()
        handshake.close()


def test_port_that_speaks_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def serve() -> None:
            listener.settimeout(0.1)
            while not ended.is_set():
                try:
                    link, _ = listener.accept()
                except TimeoutError:
                    continue
                link.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                link.close()

        server = threading.Thread(target=serve)
        server.start()
        handshake = Handshake(f"tcp://127.0.0.1:{listener.getsockname()[1]}", deadline_s=1.5)
        with pytest.raises(DeadlineError, match="does something else listen there"):
            handshake.greet()
        handshake.close()
        ended.set()
        server.join(10)


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (b"", "INIT"),
        (b"\xc1\xc1\xc1", "INIT"),
        (b"\x91" * 5000, "INIT"),
        (b"\x82\xa9addresses\x80\xafparallel_config" + b"\x91" * 5000, "INIT"),
        (b"\x80", "addresses"),
        (b"\x81\xa9addresses\x80", "inputs"),
        (b"\x81\xa9addresses\x82\xa6inputs\x90\xa7outputs\x90", "0 input addresses"),
        (b"\x81\xa9addresses\x82\xa6inputs\x91\xa1a\xa7outputs\x90", "1 input addresses and 0 output"),
        (b"\x81\xa9addresses\x82\xa6inputs\x91\x01\xa7outputs\x90", "Expected `str`"),
    ],
)
def test_init_that_is_garbage(tmp_path: Path, frame: bytes, complaint: str) -> None:
    with RawFrontend(tmp_path) as frontend, greeting(frontend.handshake_address) as (_, future):
        frontend.take_status()
        frontend.send_init(frame)
        with pytest.raises(ProtocolError, match=complaint):
            future.result(10)


def test_told_to_stop(tmp_path: Path) -> None:
    handshake = Handshake(f"ipc://{tmp_path}/nobody", should_stop=lambda: True)
    with pytest.raises(DeadlineError, match="told to stop"):
        handshake.greet()
    handshake.close()
    handshake.close()


def test_impossible_address() -> None:
    handshake = Handshake("carrier-pigeon://somewhere")
    with pytest.raises(ProtocolError, match="carrier-pigeon"):
        handshake.greet()
    handshake.close()


def test_addresses_before_init(tmp_path: Path) -> None:
    handshake = Handshake(f"ipc://{tmp_path}/h")
    with pytest.raises(ProtocolError):
        _ = handshake.addresses
    with pytest.raises(ProtocolError):
        handshake.ready()
    handshake.close()
