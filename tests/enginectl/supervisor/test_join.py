"""Taking the engine's place at a frontend: frontends that come back, and those that are not what they should be."""

from __future__ import annotations

import http.server
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator

import pytest
import zmq

from engine.messages import ENGINE_CORE_DEAD, FinishReason, SamplingParams
from enginectl.client import connect
from enginectl.control import EngineView
from enginectl.supervisor.join import FrontendLink
from enginectl.supervisor.loop import Loop
from enginectl.views import ready_lines
from tests.support.frontend import RawFrontend
from tests.support.joined import join_settings, joined
from tests.support.ports import kept_address
from tests.support.rig import Rig
from tests.support.wait import wait_until

PROMPT = [3, 4, 5, 6]


@pytest.fixture
def address() -> Iterator[str]:
    """Of frontends that come one after the other."""
    with kept_address() as kept:
        yield kept


def pid_of(view: EngineView) -> int:
    assert view.process is not None
    return view.process.pid


class SlowClient:
    """Takes nothing at the first `refusals` attempts."""

    index = 0

    def __init__(self, refusals: int) -> None:
        self.pending: deque[list[bytes]] = deque()
        self.taken: list[list[bytes]] = []
        self._refusals = refusals

    def send(self, frames: list[bytes]) -> bool:
        self._refusals -= 1
        if self._refusals < 0:
            self.taken.append(frames)
        return self._refusals < 0

    def close(self, linger_ms: int) -> None:
        self.taken.append([b"closed"])


def test_the_last_message_waits_behind_what_waits() -> None:
    link, client = FrontendLink(Loop(), zmq.Context.instance(), "ipc:///unused", b"\0\0", None), SlowClient(5)  # type: ignore[arg-type]
    link.clients = [client]  # type: ignore[list-item]
    assert not link.send(0, [b"an output"])
    link.dead()
    link.close()
    assert client.taken == [[b"an output"], [ENGINE_CORE_DEAD], [b"closed"]]


@pytest.mark.parametrize("clients_then", [1, 2])
def test_a_frontend_that_comes_back_finds_the_same_engine(rig: Rig, address: str, clients_then: int) -> None:
    with RawFrontend(num_clients=2, handshake=address) as first:
        engine = joined(rig, first, env={"PACED_STEP_MS": "10"})
        pid = pid_of(engine.status())
        first.add("left", PROMPT, max_tokens=1500, ignore_eos=True)
        first.pump(lambda: bool(first.generations["left"].token_ids))
    wait_until(lambda: not engine.requests(), 10.0, "its requests aborted")
    assert any("gone from" in event.text and "connection broke" in event.text for event in engine.events())
    with RawFrontend(num_clients=clients_then, handshake=address) as second:
        response = second.wait_ready(20.0)
        assert response.max_num_seqs == 8
        for client in range(clients_then):
            second.add(f"n{client}", PROMPT, client=client, max_tokens=4, ignore_eos=True)
        for generation in second.collect_all([f"n{client}" for client in range(clients_then)]):
            assert generation.finish_reason == FinishReason.LENGTH
        assert pid_of(engine.status()) == pid and engine.status().restarts == 0


def test_an_answer_to_a_frontend_that_is_gone_does_not_reach_its_successor(rig: Rig, address: str) -> None:
    """A frontend goes down at the answer to a call that it did not make."""
    with RawFrontend(handshake=address) as first:
        engine = joined(rig, first, env={"PACED_STEP_MS": "20"})
        stream = engine.generate(PROMPT, SamplingParams(max_tokens=1500, ignore_eos=True), request_id="own")
        next(stream)
        first.ask("pause_scheduler", "wait", False)
        with connect("t") as other:
            wait_until(lambda: other.call("is_scheduler_paused"), 10.0, "waits for what runs")
    with RawFrontend(handshake=address) as second:
        second.wait_ready(20.0)
        with connect("t") as other:
            assert [outcome.result for outcome in other.abort("own")] == ["aborted"]
        second.call("resume_scheduler")
        second.add("a", PROMPT, max_tokens=3, ignore_eos=True)
        assert second.collect("a").finish_reason == FinishReason.LENGTH


def test_more_clients_than_seats_are_refused_with_the_reason(rig: Rig, address: str) -> None:
    with RawFrontend(handshake=address) as first:
        engine = joined(rig, first)
    wait_until(lambda: "not there yet" in engine.status().frontend, 10.0, "gone")
    with RawFrontend(num_clients=3, handshake=address) as second:
        second.take_status()
        second.send_init()
        wait_until(lambda: "3 clients" in engine.status().frontend, 10.0, "the reason")
        assert "restart the engine" in engine.status().frontend
        identity, frame = second._handshake.recv_multipart()
        assert identity == second.identity and b"FAILED" in frame  # a status that ends a real frontend
    with RawFrontend(handshake=address) as third:
        third.wait_ready(20.0)


def failure(rig: Rig, address: str) -> str:
    """How a start that joins there ends."""
    rig.launch(join_settings(rig, address))
    with connect("t") as engine:
        *_, last = list(engine.watch())
    assert last.state == "failed" and last.last_exit is not None
    wait_until(lambda: rig.entry().liveness == "dead", 10.0, "the end")
    return last.last_exit.cause


def test_a_frontend_that_expects_a_local_engine(rig: Rig) -> None:
    """The real one raises at such a HELLO, and is gone."""
    frontend = RawFrontend(is_local=True)
    rig.launch(join_settings(rig, frontend.handshake_address))
    with connect("t") as engine:
        assert frontend._handshake.poll(60_000)
        frontend.close()
        *_, last = list(engine.watch())
    assert last.last_exit is not None and "--data-parallel-size-local 0" in last.last_exit.cause


@pytest.fixture
def http_port() -> Iterator[int]:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_a_port_that_speaks_http(rig: Rig, http_port: int) -> None:
    assert "does not speak ZMQ" in failure(rig, f"tcp://127.0.0.1:{http_port}")


def test_a_coordinator_is_refused(rig: Rig) -> None:
    with RawFrontend(coordinator=("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")) as frontend:
        rig.launch(join_settings(rig, frontend.handshake_address))
        with connect("t") as engine:
            frontend.take_status(60.0)
            frontend.send_init()
            *_, last = list(engine.watch())
        assert last.last_exit is not None and "coordinator" in last.last_exit.cause


def test_an_identity_that_is_taken(rig: Rig) -> None:
    with RawFrontend() as frontend:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        other = context.socket(zmq.DEALER)
        other.setsockopt(zmq.LINGER, 0)
        other.setsockopt(zmq.IDENTITY, b"\0\0")
        other.connect(frontend.handshake_address)
        other.send(b"\x80")
        assert frontend._handshake.poll(5000)
        cause = failure(rig, frontend.handshake_address)
        other.close()
        context.term()
    assert "does not answer HELLO" in cause and "taken its place" in cause


def test_what_is_wrong_with_init_is_said(rig: Rig) -> None:
    with RawFrontend() as frontend:
        rig.launch(join_settings(rig, frontend.handshake_address))
        with connect("t") as engine:
            frontend.take_status(60.0)
            frontend.send_init(b"\x81\xa1x\x01")
            *_, last = list(engine.watch())
        assert last.last_exit is not None and "INIT" in last.last_exit.cause


def refuses_init(rig: Rig, frontend: RawFrontend, cause: str) -> None:
    """The start ends with that reason, and the frontend that waits is ended too."""
    rig.launch(join_settings(rig, frontend.handshake_address))
    with connect("t") as engine:
        frontend.take_status(60.0)
        frontend.send_init()
        *_, last = list(engine.watch())
    assert last.last_exit is not None and cause in last.last_exit.cause
    assert b"FAILED" in frontend._handshake.recv_multipart()[1]


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_an_address_in_init_that_is_none_is_said_and_leaves_nothing(rig: Rig, kind: str) -> None:
    with RawFrontend(num_clients=2) as frontend:
        getattr(frontend.addresses, kind)[1] = "tcp://127.0.0.1:x"
        refuses_init(rig, frontend, "cannot connect to 'tcp://127.0.0.1:x'")
        wait_until(lambda: rig.entry().liveness == "dead", 10.0, "the end")


def test_an_address_that_is_none_is_told_once_however_often_it_comes(rig: Rig, address: str) -> None:
    with RawFrontend(handshake=address) as first:
        engine = joined(rig, first)
    wait_until(lambda: "not there yet" in engine.status().frontend, 10.0, "gone")
    before = engine.events()[-1].seq
    with RawFrontend(handshake=address) as second:
        second.addresses.inputs[0] = "tcp://127.0.0.1:x"
        for _ in range(2):
            assert second._handshake.poll(20_000)
            second._handshake.recv_multipart()  # HELLO
            second.send_init()
            assert second._handshake.poll(20_000)
            assert b"FAILED" in second._handshake.recv_multipart()[1]
        (told,) = [event.text for event in engine.events(since_seq=before) if event.type == "frontend"]
        assert "cannot connect to 'tcp://127.0.0.1:x'" in told
    with RawFrontend(handshake=address) as third:
        third.wait_ready(20.0)


def test_an_engine_that_cannot_start_ends_the_frontend_that_waits(rig: Rig) -> None:
    with RawFrontend() as frontend:
        settings = join_settings(rig, frontend.handshake_address, model=str(rig.root / "no-model"))
        rig.launch(settings)
        frontend.take_status(60.0)
        frontend.send_init()
        assert frontend._handshake.poll(30_000)
        assert b"FAILED" in frontend._handshake.recv_multipart()[1]


@pytest.mark.parametrize("host", ["127.0.0.2", "[::1]"])
def test_any_loopback_address_is_joined(rig: Rig, host: str) -> None:
    with RawFrontend(host=host) as frontend:
        engine = joined(rig, frontend)
        assert frontend.handshake_address.startswith(f"tcp://{host}:")
        frontend.add("a", PROMPT, max_tokens=3, ignore_eos=True)
        assert frontend.collect("a").finish_reason == FinishReason.LENGTH
        assert engine.status().frontend == f"{frontend.handshake_address}, 1 client"


def anywhere(address: str) -> str:
    """The same place by an address that is not of the loopback interface."""
    return address.replace("127.0.0.1", "0.0.0.0")


def test_sockets_beyond_this_machine_are_refused(rig: Rig) -> None:
    """Its handshake is near, but what passes would not be."""
    with RawFrontend() as frontend:
        frontend.addresses.outputs[:] = map(anywhere, frontend.addresses.outputs)
        refuses_init(rig, frontend, "beyond this machine: prompts and outputs")


def test_another_machine_is_joined_where_that_is_permitted_and_said(rig: Rig) -> None:
    with RawFrontend() as frontend:
        frontend.addresses.inputs[:] = map(anywhere, frontend.addresses.inputs)
        frontend.addresses.outputs[:] = map(anywhere, frontend.addresses.outputs)
        settings = join_settings(rig, anywhere(frontend.handshake_address))
        settings.allow_remote = True
        rig.launch(settings)
        with connect("t") as engine:
            frontend.wait_ready(60.0)
            view = rig.await_ready(engine)
        frontend.add("a", PROMPT, max_tokens=3, ignore_eos=True)
        assert frontend.collect("a").finish_reason == FinishReason.LENGTH
    assert "another machine: prompts and outputs pass in clear" in view.frontend
    assert any("another machine" in line for line in ready_lines(view))


def test_a_supervisor_that_is_killed_while_its_engine_loads_ends_the_frontend_that_waits(rig: Rig) -> None:
    """Such a frontend reads its handshake only."""
    with RawFrontend() as frontend:
        supervisor = rig.launch(join_settings(rig, frontend.handshake_address, env={"PACED_LOAD_S": "60"}))
        with connect("t") as engine:
            frontend.take_status(60.0)
            frontend.send_init()
            wait_until(lambda: any(p.name == "load weights" for p in engine.status().phases), 20.0, "loading")
            process = engine.status().process
            assert process is not None
            rig.remember(process.pid)
        os.kill(supervisor, signal.SIGKILL)
        assert frontend._handshake.poll(20_000)
        identity, frame = frontend._handshake.recv_multipart()
        assert identity == frontend.identity and b"FAILED" in frame
